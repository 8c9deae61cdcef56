// An HTTP server that does what a test says, right or wrong, and a right one that keeps what is put.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace xqajit::testing {

struct Request {
    std::string method, path, head, body;
};

class ScriptedServer {
public:
    // One connection's view of the server.
    class Connection {
    public:
        bool send(std::string const& bytes) const;  // false: the client has gone
        void wait_for_client() const;               // until it closes the connection, or the server ends

    private:
        friend ScriptedServer;
        Connection(ScriptedServer const& server, int socket) : server_(server), socket_(socket) {}
        ScriptedServer const& server_;
        int socket_;
    };
    // Called for each request, by several threads; the connection is closed afterwards.
    using Script = std::function<void(Request const&, Connection const&)>;

    explicit ScriptedServer(Script script);
    ~ScriptedServer();
    ScriptedServer(ScriptedServer const&) = delete;

    std::string url() const;
    std::size_t requests(std::string const& method = "") const;  // that came whole

private:
    void serve();
    void talk(int socket);
    bool read(int socket, Request& request) const;

    Script const script_;
    UniqueFd listener_;
    int port_ = 0;
    std::atomic<bool> is_ending_{false};
    mutable std::mutex mutex_;
    std::vector<std::string> methods_;
    std::vector<std::thread> connections_;
    std::thread thread_;
};

// "HTTP/1.1 200 OK" with the body's length.
std::string http_answer(int status, std::string const& body = "");

// What nginx does, in this process: GET, HEAD and PUT of any path.
class KeepingServer {
public:
    std::string url() const { return server_.url(); }
    std::size_t requests(std::string const& method = "") const { return server_.requests(method); }
    std::map<std::string, std::string> files() const;
    void put(std::string const& path, std::string const& body);
    void answer_all(int status) { status_ = status; }  // 0: as they deserve

private:
    std::string answer(Request const& request);

    mutable std::mutex mutex_;
    std::map<std::string, std::string> files_;
    std::atomic<int> status_{0};
    ScriptedServer server_{
        [this](Request const& request, ScriptedServer::Connection const& client) { client.send(answer(request)); }};
};

}  // namespace xqajit::testing
