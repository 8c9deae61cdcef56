// The remote layer: entries on an HTTP server, got and put by key. It is asked after all that is on this machine, and never stands in a
// launch's way: a server that is gone costs one wait, and is then left alone until a thread in the background finds it again.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "cache/entry.h"
#include "cache/http.h"
#include "cache/signature.h"

namespace xqajit::cache {

struct RemoteOptions {
    std::string url;                         // as Url::parse() takes it; "": there is none
    bool writes = false;                     // store() and offer() do something
    std::string key_file;                    // what signs and verifies; "": none
    bool allow_unsigned = false;             // takes what has no signature, and where there is no key file anything
    std::chrono::milliseconds timeout{250};  // HttpLimits::silence; a whole transfer may take ten times as long
    std::chrono::milliseconds first_pause{
        1000};  // until a server that failed is asked again; doubled each time, up to five minutes
};

struct RemoteState {
    std::string url;      // without credentials
    bool usable = false;  // libcurl, key file and settings are as they must be
    bool reachable = false;
    bool writable = false;  // as far as the settings go
    bool has_key = false;   // entries are verified, and signed
    std::string reason;     // why not usable or not reachable, or what it answered that it should not
};

struct RemoteCounts {
    std::uint64_t errors = 0;   // requests without a usable answer
    std::uint64_t refused = 0;  // entries whose signature or content is not as it must be
    std::uint64_t stored = 0;
    std::uint64_t not_stored = 0;  // entries that were to be
};

// Thread-safe. Nothing of it fails a caller: what goes wrong is counted, and the first of each kind is logged as a warning. libcurl, libcrypto and
// the key file are opened when it is first asked.
class Remote {
public:
    explicit Remote(RemoteOptions options);
    ~Remote() { close(); }
    Remote(Remote const&) = delete;

    bool is_named() const { return !options_.url.empty(); }
    bool is_writable() const { return is_named() && options_.writes; }

    // nullopt: a miss. What is refused, cut or too long is one.
    std::optional<Entry> load(CacheKey const& key);
    // The entry, from a thread in the background, in the place of one that is there; soon, or never where the server fails.
    void store(Entry const& entry) { add(entry, /*only_if_missing=*/false); }
    // The same, unless the server has one of this key.
    void offer(Entry const& entry) { add(entry, /*only_if_missing=*/true); }
    // Until all that was given to store() and offer() is stored or given up.
    void flush();
    // flush(), for two seconds at most; nothing is stored afterwards.
    void close();

    RemoteState state();  // asks the server
    RemoteCounts counts() const;

private:
    using Clock = std::chrono::steady_clock;
    struct Job {
        CacheKey key;
        std::string entry;  // encoded
        bool only_if_missing = false;
    };
    // What was logged once.
    struct Told {
        std::atomic<bool> failure{false}, answer{false}, refusal{false}, write{false};
    };

    bool is_usable();
    Status open();
    bool is_up();
    Result<HttpAnswer> ask(HttpMethod method, CacheKey const& key, std::string_view body = {});
    void fail(std::string const& why);
    void add(Entry const& entry, bool only_if_missing);
    void start_thread();
    void work();
    void put(Job const& job);
    bool is_put(Job const& job);
    bool has(CacheKey const& key);
    static void warn_once(std::atomic<bool>& told, std::string const& text);

    RemoteOptions const options_;
    std::string const shown_;  // the URL without credentials
    std::once_flag opened_;
    Status usable_;  // after opened_, as what follows
    std::optional<SigningKey> key_;
    std::shared_ptr<HttpClient> client_;
    Told told_;
    std::atomic<std::uint64_t> errors_{0}, refused_{0}, stored_{0}, not_stored_{0};
    std::atomic<bool> refuses_writes_{false};

    std::mutex mutex_;  // guards what follows
    std::condition_variable changed_;
    bool is_down_ = false;
    Clock::time_point ask_again_;
    std::chrono::milliseconds pause_;
    std::deque<Job> jobs_;
    std::uint64_t queued_bytes_ = 0;
    bool is_busy_ = false;  // with a job that has left the queue
    bool probe_is_due_ = false;
    bool is_closing_ = false;
    std::thread thread_;
};

}  // namespace xqajit::cache
