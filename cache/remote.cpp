#include "cache/remote.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "cache/remote_object.h"

namespace xqajit::cache {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{300'000};
constexpr milliseconds kLongestClose{2000};
constexpr int kWholeTimeouts = 10;
constexpr std::uint64_t kMostQueuedBytes = 256u << 20;

bool is_miss(long status) { return status == 404 || status == 410; }
bool is_stored(long status) { return status >= 200 && status < 300; }
// The server, not the request.
bool is_trouble(long status) { return status >= 500 || status == 429; }
bool says_never(long status) { return status == 401 || status == 403 || status == 405; }

char const* name_of(HttpMethod method) { return method == HttpMethod::kGet ? "GET" : method == HttpMethod::kPut ? "PUT" : "HEAD"; }

}  // namespace

Remote::Remote(RemoteOptions options)
    : options_(std::move(options)), shown_(without_credentials(options_.url)), pause_(options_.first_pause) {}

void Remote::warn_once(std::atomic<bool>& told, std::string const& text) {
    if (told.exchange(true))
        log::debug(text);
    else
        log::warning(text);
}

Status Remote::open() {
    Result<Url> url = Url::parse(options_.url);
    if (!url.ok()) return url.status();
    Result<std::shared_ptr<HttpClient>> client =
        HttpClient::open(std::move(*url), {options_.timeout, kWholeTimeouts * options_.timeout, kMaxRemoteBytes});
    if (!client.ok()) return client.status();
    client_ = std::move(*client);
    if (!options_.key_file.empty()) {
        Result<SigningKey> key = SigningKey::read(options_.key_file);
        if (!key.ok()) return {key.status().code(), "XQAJIT_CACHE_KEY_FILE: " + key.status().message()};
        if (Result<std::string> const signature = key->sign(""); !signature.ok()) return signature.status();
        key_ = std::move(*key);
    } else if (!options_.allow_unsigned) {
        return unavailable(
            "XQAJIT_CACHE_KEY_FILE is not set, so that no entry can be verified: accepted is a key file, or "
            "XQAJIT_REMOTE_ALLOW_UNSIGNED=1");
    }
    return {};
}

bool Remote::is_usable() {
    if (!is_named()) return false;
    std::call_once(opened_, [this] {
        usable_ = open();
        if (!usable_.ok()) log::warning(fmt::format("the remote cache {} is left out: {}", shown_, usable_.message()));
    });
    return usable_.ok();
}

// Where the server was down a thread asks whether it still is: no launch waits for the answer.
bool Remote::is_up() {
    std::lock_guard const lock(mutex_);
    if (is_down_ && !is_closing_ && Clock::now() >= ask_again_) {
        probe_is_due_ = true;
        start_thread();
    }
    return !is_down_;
}

void Remote::fail(std::string const& why) {
    ++errors_;
    {
        std::lock_guard const lock(mutex_);
        if (!is_down_ || Clock::now() >= ask_again_) {  // else another thread met the same failure
            ask_again_ = Clock::now() + pause_;
            pause_ = std::min(2 * pause_, kLongestPause);
        }
        is_down_ = true;
    }
    warn_once(told_.failure, fmt::format("the remote cache does without its server for now: {}", why));
}

// A request whose outcome says whether the server is up.
Result<HttpAnswer> Remote::ask(HttpMethod method, CacheKey const& key, std::string_view body) {
    Result<HttpAnswer> answer = client_->request(method, remote_name(key), body);
    bool const is_gone = !answer.ok() && answer.status().code() != XQAJIT_CACHE_CORRUPT;
    if (is_gone || (answer.ok() && is_trouble(answer->status))) {
        fail(is_gone ? answer.status().message() : fmt::format("{} answered {} to {}", shown_, answer->status, name_of(method)));
        return is_gone ? std::move(answer) : unavailable("trouble");
    }
    bool was_down = false;
    {
        std::lock_guard const lock(mutex_);
        was_down = std::exchange(is_down_, false);
        pause_ = options_.first_pause;
    }
    if (was_down) log::info(fmt::format("the remote cache {} answers again", shown_));
    return answer;
}

std::optional<Entry> Remote::load(CacheKey const& key) {
    if (!is_usable() || !is_up()) return std::nullopt;
    Result<HttpAnswer> const answer = ask(HttpMethod::kGet, key);
    if (!answer.ok() && answer.status().code() != XQAJIT_CACHE_CORRUPT) return std::nullopt;
    if (answer.ok() && is_miss(answer->status)) return std::nullopt;
    if (answer.ok() && answer->status != 200) {
        ++errors_;
        warn_once(told_.answer, fmt::format("{} answered {} to GET: accepted are 200 and 404", shown_, answer->status));
        return std::nullopt;
    }
    Result<Entry> entry = answer.ok() ? admit_remote(answer->body, key, key_ ? &*key_ : nullptr, options_.allow_unsigned)
                                      : Result<Entry>(answer.status());
    if (entry.ok()) return std::move(*entry);
    ++refused_;
    warn_once(told_.refusal, fmt::format("an entry of the remote cache was refused: {}/{}: {}", shown_, remote_name(key),
                                         entry.status().message()));
    return std::nullopt;
}

void Remote::add(Entry const& entry, bool only_if_missing) {
    if (!is_writable() || !check_limits(entry).ok() || !is_usable()) return;
    bool const takes = !refuses_writes_ && is_up();
    Job job{entry.key, encode_entry(entry), only_if_missing};
    std::lock_guard const lock(mutex_);
    if (!takes || is_closing_ || queued_bytes_ + job.entry.size() > kMostQueuedBytes) {
        ++not_stored_;
        return;
    }
    queued_bytes_ += job.entry.size();
    jobs_.push_back(std::move(job));
    start_thread();
}

// Under mutex_.
void Remote::start_thread() {
    if (!thread_.joinable()) {
        // The host's signals are for the host's threads.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { work(); });
        } catch (std::system_error const&) {
            not_stored_ += jobs_.size();
            jobs_.clear();
            queued_bytes_ = 0;
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    changed_.notify_all();
}

void Remote::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return is_closing_ || probe_is_due_ || !jobs_.empty(); });
        if (probe_is_due_ && !is_closing_) {
            probe_is_due_ = false;
            lock.unlock();
            (void)ask(HttpMethod::kHead, CacheKey{});
            lock.lock();
        } else if (!jobs_.empty()) {
            Job const job = std::move(jobs_.front());
            jobs_.pop_front();
            queued_bytes_ -= job.entry.size();
            is_busy_ = true;
            lock.unlock();
            put(job);
            lock.lock();
            is_busy_ = false;
            changed_.notify_all();
        } else if (is_closing_) {
            return;
        }
    }
}

bool Remote::has(CacheKey const& key) {
    Result<HttpAnswer> const answer = ask(HttpMethod::kHead, key);
    return answer.ok() && answer->status == 200;
}

void Remote::put(Job const& job) {
    if (job.only_if_missing && is_up() && has(job.key)) return;
    ++(is_put(job) ? stored_ : not_stored_);
}

bool Remote::is_put(Job const& job) {
    if (!is_up() || refuses_writes_) return false;
    Result<std::string> const signature = key_ ? key_->sign(job.entry) : Result<std::string>(std::string());
    if (!signature.ok()) {
        warn_once(told_.write, signature.status().message());
        return false;
    }
    Result<HttpAnswer> const answer = ask(HttpMethod::kPut, job.key, encode_remote(job.entry, *signature));
    if (!answer.ok() || is_stored(answer->status)) return answer.ok();
    ++errors_;
    if (says_never(answer->status)) refuses_writes_ = true;
    warn_once(told_.write, fmt::format("{} answered {} to a PUT of {} bytes{}", shown_, answer->status, job.entry.size(),
                                       refuses_writes_ ? ": nothing more is put there" : ""));
    return false;
}

void Remote::flush() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty() && !is_busy_; });
}

void Remote::close() {
    {
        std::lock_guard const lock(mutex_);
        is_closing_ = true;
        if (client_ != nullptr) client_->stop_at(Clock::now() + kLongestClose);
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

RemoteState Remote::state() {
    RemoteState state;
    state.url = shown_;
    state.writable = is_writable();
    state.usable = is_usable();
    state.has_key = key_.has_value();
    state.reason = usable_.message();
    if (!state.usable) return state;
    Result<HttpAnswer> const answer = client_->request(HttpMethod::kHead, remote_name({}));
    state.reachable = answer.ok() && !is_trouble(answer->status);
    if (!answer.ok())
        state.reason = answer.status().message();
    else if (answer->status != 200 && !is_miss(answer->status))
        state.reason = fmt::format("it answered {} to HEAD: accepted are 200 and 404", answer->status);
    return state;
}

RemoteCounts Remote::counts() const { return {errors_, refused_, stored_, not_stored_}; }

}  // namespace xqajit::cache
