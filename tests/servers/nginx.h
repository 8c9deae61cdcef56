// A real nginx that takes PUT by WebDAV, in a folder of its own and as who runs the tests.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace xqajit::testing {

class Nginx {
public:
    static bool is_installed();
    Nginx();  // started, and answering
    ~Nginx();
    Nginx(Nginx const&) = delete;

    // What lies below it is the same, unless the place answers by itself:
    //   cache      GET and PUT
    //   read-only  PUT is answered by 403
    //   private    as cache, for user "ann" with the password "pa/ss@word"
    //   forbidden, broken, moved   403, 500, and a redirect to cache
    std::string url(std::string const& place = "cache") const;
    std::string url_of_private() const;                            // with the credentials, percent-escaped
    std::string folder() const { return folder_ + "/www/cache"; }  // with the stored files
    std::vector<std::string> files() const;
    std::vector<std::string> requests(std::string const& method) const;  // "PUT /cache/0123... 201", as far as they are logged

    void kill();   // by SIGKILL: connections are cut, and new ones refused
    void start();  // again, on the same port

private:
    bool try_start();

    std::string folder_;
    int port_ = 0;
    pid_t process_ = -1;
};

// A port of the loopback interface that nothing listens to just now.
int free_port();
// Whether something does.
bool accepts(int port);

}  // namespace xqajit::testing
