// HTTP requests with limits on all that a server can make us wait for or keep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/url.h"

namespace xqajit::cache {

enum class HttpMethod { kGet, kHead, kPut };

struct HttpLimits {
    std::chrono::milliseconds silence{
        250};  // until a connection is there and, of get() and head(), the answer begins; between its parts
    std::chrono::milliseconds whole{2500};  // of a request with all its tries
    std::uint64_t max_bytes = 0;            // of an answer's body
};

struct HttpAnswer {
    long status = 0;   // 404
    std::string body;  // of status 200 alone
};

// Thread-safe: each request in flight has a connection of its own, and a few are kept for later ones. Redirects are not followed, nothing but
// http and https is spoken, and no error has the credentials.
class HttpClient {
public:
    // UNAVAILABLE: this build has no HTTP, or libcurl is not found here; the message says which.
    static Result<std::shared_ptr<HttpClient>> open(Url url, HttpLimits const& limits);
    ~HttpClient();

    // name: below the URL. UNAVAILABLE: no whole answer came, after up to three tries where the server was gone, closed the connection or said 502, 503 or
    // 504. CACHE_CORRUPT: the answer is longer than the limits. Any status is an answer.
    Result<HttpAnswer> request(HttpMethod method, std::string const& name, std::string_view body = {});
    // No request lasts longer than this from now on, nor do those in flight.
    void stop_at(std::chrono::steady_clock::time_point deadline);

private:
    struct Connection;
    struct Transfer;
    HttpClient(Url url, HttpLimits const& limits);
    std::unique_ptr<Connection> connection();
    void keep(std::unique_ptr<Connection> connection);
    bool set_up(Connection& connection, Transfer& transfer) const;
    Status try_once(Connection& connection, Transfer& transfer, bool& try_again) const;

    Url const url_;
    HttpLimits const limits_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Connection>> idle_;
    std::atomic<std::chrono::steady_clock::time_point> stop_at_{std::chrono::steady_clock::time_point::max()};
};

}  // namespace xqajit::cache
