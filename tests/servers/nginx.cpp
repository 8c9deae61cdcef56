#include "servers/nginx.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "catch.h"

namespace xqajit::testing {
namespace {

constexpr char kProgram[] = "/usr/sbin/nginx";
constexpr int kPortAttempts = 5;

sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
}

// One process, so that one signal ends it all.
std::string configuration(std::string const& folder, int port) {
    std::string const at = "127.0.0.1:" + std::to_string(port);
    std::string text = "daemon off; master_process off; pid " + folder + "/pid; error_log " + folder +
                       "/error.log;\nevents { worker_connections 256; }\nhttp {\n";
    for (char const* part : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
        text += std::string(part) + "_temp_path " + folder + "/" + part + ";\n";
    text += "log_format plain '$request_method $uri $status'; access_log " + folder + "/access.log plain;\n" +
            "client_max_body_size 100m;\nserver { listen " + at + "; root " + folder + "/www;\n" +
            "location /cache/ { dav_methods PUT; }\n"
            "location /read-only/ { alias " +
            folder +
            "/www/cache/; dav_methods PUT; limit_except GET { deny all; } }\n"
            "location /private/ { alias " +
            folder + "/www/cache/; dav_methods PUT; auth_basic a; auth_basic_user_file " + folder +
            "/users; }\n"
            "location /forbidden/ { return 403; }\nlocation /broken/ { return 500; }\n"
            "location ~ ^/moved/(.*)$ { return 302 http://" +
            at + "/cache/$1; }\n} }\n";
    return text;
}

}  // namespace

int free_port() {
    UniqueFd const socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
}

bool accepts(int port) {
    UniqueFd const socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in const address = loopback(port);
    return ::connect(socket.get(), reinterpret_cast<sockaddr const*>(&address), sizeof address) == 0;
}

bool Nginx::is_installed() { return ::access(kProgram, X_OK) == 0; }

Nginx::Nginx() {
    folder_ = (std::filesystem::temp_directory_path() / "xqajit-nginx-XXXXXX").string();
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    std::filesystem::create_directories(folder());
    std::ofstream(folder_ + "/users") << "ann:{PLAIN}pa/ss@word\n";
    bool started = false;
    for (int attempt = 0; attempt < kPortAttempts && !started; ++attempt) {  // another program may take the port meanwhile
        port_ = free_port();
        std::ofstream(folder_ + "/nginx.conf") << configuration(folder_, port_);
        started = try_start();
    }
    std::ifstream errors(folder_ + "/error.log");
    INFO(std::string(std::istreambuf_iterator<char>(errors), {}));
    REQUIRE(started);
}

Nginx::~Nginx() {
    kill();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

std::string Nginx::url(std::string const& place) const { return "http://127.0.0.1:" + std::to_string(port_) + "/" + place; }
std::string Nginx::url_of_private() const { return "http://ann:pa%2Fss%40word@" + url("private").substr(7); }

std::vector<std::string> Nginx::files() const {
    std::vector<std::string> files;
    for (auto const& file : std::filesystem::directory_iterator(folder())) files.push_back(file.path().string());
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<std::string> Nginx::requests(std::string const& method) const {
    std::vector<std::string> lines;
    std::ifstream log(folder_ + "/access.log");
    for (std::string line; std::getline(log, line);)
        if (line.starts_with(method + " ")) lines.push_back(line);
    return lines;
}

void Nginx::kill() {
    if (process_ < 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
}

void Nginx::start() { REQUIRE(try_start()); }

bool Nginx::try_start() {
    std::string const configured = folder_ + "/nginx.conf", errors = folder_ + "/error.log";
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it does not outlive a test that is killed
        int const null = ::open("/dev/null", O_RDWR);
        for (int const stream : {0, 1, 2}) ::dup2(null, stream);
        ::execl(kProgram, kProgram, "-e", errors.c_str(), "-c", configured.c_str(), nullptr);
        ::_exit(127);
    }
    auto const deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!accepts(port_)) {
        if (::waitpid(process_, nullptr, WNOHANG) == process_ || std::chrono::steady_clock::now() > deadline) {
            process_ = -1;
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

}  // namespace xqajit::testing
