#include "servers/scripted_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "catch.h"

namespace xqajit::testing {
namespace {

constexpr int kLookEveryMs = 20;  // how soon the end of the server is noticed

}  // namespace

ScriptedServer::ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener_.get(), 64) == 0);
    REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
}

ScriptedServer::~ScriptedServer() {
    is_ending_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
}

std::string ScriptedServer::url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/cache"; }

std::size_t ScriptedServer::requests(std::string const& method) const {
    std::lock_guard const lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(methods_.begin(), methods_.end(), [&](std::string const& one) { return method.empty() || one == method; }));
}

void ScriptedServer::serve() {
    while (!is_ending_) {
        pollfd waiting{listener_.get(), POLLIN, 0};
        if (::poll(&waiting, 1, kLookEveryMs) <= 0) continue;
        int const socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (socket >= 0) connections_.emplace_back([this, socket] { talk(socket); });
    }
}

void ScriptedServer::talk(int socket) {
    UniqueFd const owner(socket);
    Request request;
    if (!read(socket, request)) return;
    {
        std::lock_guard const lock(mutex_);
        methods_.push_back(request.method);
    }
    script_(request, Connection(*this, socket));
}

bool ScriptedServer::read(int socket, Request& request) const {
    std::string bytes;
    std::size_t body_at = std::string::npos, body_bytes = 0;
    while (body_at == std::string::npos || bytes.size() < body_at + body_bytes) {
        pollfd waiting{socket, POLLIN, 0};
        if (is_ending_) return false;
        if (::poll(&waiting, 1, kLookEveryMs) <= 0) continue;
        char buffer[65536];
        ssize_t const count = ::recv(socket, buffer, sizeof buffer, 0);
        if (count <= 0) return false;
        bytes.append(buffer, static_cast<std::size_t>(count));
        if (body_at != std::string::npos) continue;
        std::size_t const end = bytes.find("\r\n\r\n");
        if (end == std::string::npos) continue;
        body_at = end + 4;
        std::size_t const length = bytes.find("Content-Length: ");
        if (length < end) body_bytes = std::strtoull(bytes.c_str() + length + 16, nullptr, 10);
    }
    request.head = bytes.substr(0, body_at);
    request.body = bytes.substr(body_at);
    std::size_t const first = bytes.find(' '), second = bytes.find(' ', first + 1);
    request.method = bytes.substr(0, first);
    request.path = bytes.substr(first + 1, second - first - 1);
    return true;
}

bool ScriptedServer::Connection::send(std::string const& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
        pollfd waiting{socket_, POLLOUT, 0};
        if (server_.is_ending_) return false;
        if (::poll(&waiting, 1, kLookEveryMs) <= 0) continue;
        ssize_t const count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno != EAGAIN) return false;
        if (count > 0) sent += static_cast<std::size_t>(count);
    }
    return true;
}

void ScriptedServer::Connection::wait_for_client() const {
    while (!server_.is_ending_) {
        pollfd waiting{socket_, POLLIN, 0};
        char byte = 0;
        if (::poll(&waiting, 1, kLookEveryMs) > 0 && ::recv(socket_, &byte, 1, 0) <= 0) return;
    }
}

std::string http_answer(int status, std::string const& body) {
    return "HTTP/1.1 " + std::to_string(status) + " -\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
}

std::map<std::string, std::string> KeepingServer::files() const {
    std::lock_guard const lock(mutex_);
    return files_;
}

void KeepingServer::put(std::string const& path, std::string const& body) {
    std::lock_guard const lock(mutex_);
    files_[path] = body;
}

std::string KeepingServer::answer(Request const& request) {
    if (status_ != 0) return http_answer(status_);
    std::lock_guard const lock(mutex_);
    if (request.method == "PUT") {
        files_[request.path] = request.body;
        return http_answer(201);
    }
    auto const found = files_.find(request.path);
    std::string whole = found == files_.end() ? http_answer(404) : http_answer(200, found->second);
    return request.method == "HEAD" ? whole.substr(0, whole.find("\r\n\r\n") + 4) : whole;
}

}  // namespace xqajit::testing
