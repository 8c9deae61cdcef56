#include "cache/http.h"

#include "cache/curl_library.h"

#ifdef XQAJIT_HAS_CURL
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "base/file.h"

namespace xqajit::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTries = 3;
constexpr milliseconds kFirstPause{10};      // before the second try
constexpr milliseconds kLongestPoll{50};     // how late stop_at() may be noticed
constexpr std::size_t kMostIdle = 4;         // connections that are kept
constexpr std::size_t kMostHeaders = 65536;  // bytes of an answer's head, and of the body of one that is none of ours
constexpr long kOk = 200;

// A library must not let its host die of a socket that the server closed, nor change what the host does with the signal.
class SigpipeBlocked {
public:
    SigpipeBlocked() {
        ::sigemptyset(&pipe_);
        ::sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    }
    SigpipeBlocked(SigpipeBlocked const&) = delete;
    ~SigpipeBlocked() {
        timespec const now{0, 0};
        if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &now);
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

private:
    sigset_t pipe_, before_;
    bool was_pending_ = false;
};

// A child that the host starts meanwhile inherits no connection.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
    return above_standard(::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol)).release();
}

bool may_pass(CURLcode code) {
    switch (code) {
        case CURLE_COULDNT_CONNECT:
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_GOT_NOTHING:
        case CURLE_PARTIAL_FILE:
            return true;
        default:
            return false;
    }
}

bool may_pass(long status) { return status == 502 || status == 503 || status == 504; }

}  // namespace

struct HttpClient::Connection {
    ~Connection() {
        CurlLibrary const& curl = CurlLibrary::get();
        if (easy != nullptr) curl.easy_cleanup(easy);
        if (multi != nullptr) curl.multi_cleanup(multi);
        curl.slist_free_all(headers);
    }
    CURL* easy = nullptr;
    CURLM* multi = nullptr;  // curl_easy_perform() would look at the clock once a second
    curl_slist* headers = nullptr;
};

struct HttpClient::Transfer {
    HttpMethod method;
    std::string target;
    std::string_view sent;
    std::uint64_t max_bytes;
    Clock::time_point start = Clock::now();
    Clock::time_point progress = start;
    CURL* easy = nullptr;
    std::size_t skipped = 0;  // bytes that are not kept
    bool is_too_long = false;
    HttpAnswer answer = {};

    void begin(CURL* handle) {
        easy = handle;
        skipped = 0;
        is_too_long = false;
        answer = {};
    }
    long status() const {
        long status = 0;
        CurlLibrary::get().easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        return status;
    }
    // What the callbacks give but `bytes` ends the transfer.
    std::size_t skip(std::size_t bytes) {
        skipped += bytes;
        return skipped <= kMostHeaders ? bytes : 0;
    }
    static std::size_t on_header(char*, std::size_t, std::size_t bytes, void* self) {
        auto& transfer = *static_cast<Transfer*>(self);
        transfer.progress = Clock::now();
        return transfer.skip(bytes);
    }
    static std::size_t on_body(char* data, std::size_t, std::size_t bytes, void* self) {
        auto& transfer = *static_cast<Transfer*>(self);
        transfer.progress = Clock::now();
        if (transfer.status() != kOk || transfer.method == HttpMethod::kPut) return transfer.skip(bytes);
        transfer.is_too_long = bytes > transfer.max_bytes - transfer.answer.body.size();
        if (transfer.is_too_long) return 0;
        transfer.answer.body.append(data, bytes);
        return bytes;
    }
};

HttpClient::HttpClient(Url url, HttpLimits const& limits) : url_(std::move(url)), limits_(limits) {}
HttpClient::~HttpClient() = default;

Result<std::shared_ptr<HttpClient>> HttpClient::open(Url url, HttpLimits const& limits) {
    if (std::string const& error = CurlLibrary::get().error; !error.empty()) return unavailable(error);
    return std::shared_ptr<HttpClient>(new HttpClient(std::move(url), limits));
}

void HttpClient::stop_at(Clock::time_point deadline) { stop_at_ = deadline; }

std::unique_ptr<HttpClient::Connection> HttpClient::connection() {
    {
        std::lock_guard const lock(mutex_);
        if (!idle_.empty()) {
            std::unique_ptr<Connection> last = std::move(idle_.back());
            idle_.pop_back();
            return last;
        }
    }
    CurlLibrary const& curl = CurlLibrary::get();
    auto made = std::make_unique<Connection>();
    made->easy = curl.easy_init();
    made->multi = curl.multi_init();
    made->headers = curl.slist_append(nullptr, "Content-Type: application/octet-stream");
    return made->easy != nullptr && made->multi != nullptr && made->headers != nullptr ? std::move(made) : nullptr;
}

void HttpClient::keep(std::unique_ptr<Connection> connection) {
    std::lock_guard const lock(mutex_);
    if (idle_.size() < kMostIdle) idle_.push_back(std::move(connection));
}

bool HttpClient::set_up(Connection& connection, Transfer& transfer) const {
    CurlLibrary const& curl = CurlLibrary::get();
    CURL* const easy = connection.easy;
    curl.easy_reset(easy);
    bool good = true;
    auto const set = [&](CURLoption option, auto value) { good = curl.easy_setopt(easy, option, value) == CURLE_OK && good; };
    set(CURLOPT_URL, transfer.target.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    set(CURLOPT_USERAGENT, "xqajit");
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.silence.count()));
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, &transfer);
    if (url_.has_credentials) {
        set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
        set(CURLOPT_USERNAME, url_.user.c_str());
        set(CURLOPT_PASSWORD, url_.password.c_str());
    }
    if (transfer.method == HttpMethod::kHead) set(CURLOPT_NOBODY, 1L);
    if (transfer.method == HttpMethod::kGet) set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(transfer.max_bytes));
    if (transfer.method == HttpMethod::kPut) {
        set(CURLOPT_CUSTOMREQUEST, "PUT");
        set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer.sent.size()));
        set(CURLOPT_POSTFIELDS, transfer.sent.data());
        set(CURLOPT_HTTPHEADER, connection.headers);
    }
#if LIBCURL_VERSION_NUM >= CURL_VERSION_BITS(7, 87, 0)
    curl.easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);  // a name server that hangs is not waited for; older versions do wait
#endif
    return good;
}

Status HttpClient::try_once(Connection& connection, Transfer& transfer, bool& try_again) const {
    CurlLibrary const& curl = CurlLibrary::get();
    auto const failed = [&](std::string const& why) { return unavailable(url_.base + ": " + why); };
    transfer.begin(connection.easy);
    try_again = false;
    if (!set_up(connection, transfer) || curl.multi_add_handle(connection.multi, connection.easy) != CURLM_OK)
        return failed("libcurl does not take the request");
    CURLcode code = CURLE_OK;
    char const* waited_for = nullptr;
    for (bool ended = false; !ended;) {
        int running = 0, queued = 0;
        if (curl.multi_perform(connection.multi, &running) != CURLM_OK) {
            code = CURLE_FAILED_INIT;
            break;
        }
        while (CURLMsg const* const message = curl.multi_info_read(connection.multi, &queued)) {
            if (message->msg != CURLMSG_DONE) continue;
            code = message->data.result;
            ended = true;
        }
        Clock::time_point const whole = std::min(transfer.start + limits_.whole, stop_at_.load());
        Clock::time_point const silent =
            transfer.method == HttpMethod::kPut ? Clock::time_point::max() : transfer.progress + limits_.silence;
        Clock::time_point const now = Clock::now(), deadline = std::min(whole, silent);
        if (!ended && now >= deadline) {
            waited_for = silent < whole ? "no answer, or no more of it" : "not the whole answer";
            break;
        }
        auto const left = std::chrono::ceil<milliseconds>(deadline - now);
        if (!ended) curl.multi_poll(connection.multi, nullptr, 0, static_cast<int>(std::min(left, kLongestPoll).count()), nullptr);
    }
    long const status = transfer.status();
    curl.multi_remove_handle(connection.multi, connection.easy);
    if (waited_for != nullptr)
        return failed(fmt::format("{} in {} ms", waited_for,
                                  std::chrono::duration_cast<milliseconds>(Clock::now() - transfer.start).count()));
    if (transfer.is_too_long || code == CURLE_FILESIZE_EXCEEDED)
        return {XQAJIT_CACHE_CORRUPT, fmt::format("{}: the answer has more than {} bytes", url_.base, transfer.max_bytes)};
    transfer.answer.status = status;
    bool const is_cut = code == CURLE_WRITE_ERROR && status >= 300;  // a long page that says no
    if (code != CURLE_OK && !is_cut) {
        try_again = may_pass(code);
        return failed(curl.easy_strerror(code));
    }
    try_again = may_pass(status);
    return {};
}

Result<HttpAnswer> HttpClient::request(HttpMethod method, std::string const& name, std::string_view body) {
    SigpipeBlocked const blocked;
    std::unique_ptr<Connection> used = connection();
    if (used == nullptr) return unavailable(url_.base + ": libcurl makes no connection");
    Transfer transfer{method, url_.base + "/" + name, body, limits_.max_bytes};
    Status status;
    milliseconds pause = kFirstPause;
    for (int tries = 1;; ++tries, pause *= 2) {
        bool try_again = false;
        status = try_once(*used, transfer, try_again);
        if (!try_again || tries == kTries) break;
        if (Clock::now() + pause >= std::min(transfer.progress + limits_.silence, stop_at_.load())) break;
        std::this_thread::sleep_for(pause);
    }
    keep(std::move(used));
    if (!status.ok()) return status;
    return std::move(transfer.answer);
}

}  // namespace xqajit::cache
#else
namespace xqajit::cache {

struct HttpClient::Connection {};

HttpClient::HttpClient(Url url, HttpLimits const& limits) : url_(std::move(url)), limits_(limits) {}
HttpClient::~HttpClient() = default;

Result<std::shared_ptr<HttpClient>> HttpClient::open(Url, HttpLimits const&) {
    return unavailable("this build has no remote: it was configured without libcurl's headers, or with -DXQAJIT_CURL=OFF");
}
Result<HttpAnswer> HttpClient::request(HttpMethod, std::string const&, std::string_view) {
    return unavailable("this build has no remote");
}
void HttpClient::stop_at(std::chrono::steady_clock::time_point) {}

}  // namespace xqajit::cache
#endif
