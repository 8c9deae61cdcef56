#include "service/background.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

namespace xqajit {
namespace {

// Two at least, so that a fallback and the kernel that it stands in for are made side by side. More than a few would take the cores from
// the traffic, and NVRTC's front end is serial within a process.
std::size_t most_threads() { return std::clamp(std::thread::hardware_concurrency() / 4, 2u, 4u); }

// A thread starts with its maker's mask. The host's handlers are to run in the host's own threads.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        for (int const fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) ::sigdelset(&all, fault);
        ::pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    SignalsBlocked(SignalsBlocked const&) = delete;
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
};

}  // namespace

Status Background::add(std::function<void()> job) {
    std::lock_guard const lock(mutex_);
    if (stopping_) return unavailable("the service is being destroyed");
    if (idle_ <= jobs_.size() && threads_.size() < most_threads()) {
        SignalsBlocked const blocked;
        try {
            threads_.emplace_back([this] { work(); });
        } catch (std::system_error const& error) {
            if (threads_.empty()) return unavailable(fmt::format("no thread can be started: {}", error.what()));
        }
    }
    jobs_.push_back(std::move(job));
    added_.notify_one();
    return {};
}

void Background::work() noexcept {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        added_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
        --idle_;
        if (stopping_) return;
        std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        job();
        job = nullptr;  // what it holds is destroyed here, without the lock
        lock.lock();
    }
}

void Background::stop() noexcept {
    std::deque<std::function<void()>> dropped;
    {
        std::lock_guard const lock(mutex_);
        stopping_ = true;
        dropped.swap(jobs_);
        added_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();  // none is added any more
    threads_.clear();
}

std::vector<PendingPrepares::Prepare>::iterator PendingPrepares::find(PreparedKey const& key) {
    return std::find_if(prepares_.begin(), prepares_.end(), [&](Prepare const& prepare) { return prepare.key == key; });
}

std::optional<Status> PendingPrepares::begin(PreparedKey const& key, bool again) {
    std::lock_guard const lock(mutex_);
    auto const known = find(key);
    if (known == prepares_.end()) {
        prepares_.push_back({key, {}});
        return std::nullopt;
    }
    if (!known->failure) return Status();
    if (!again) return known->failure;
    known->failure.reset();
    return std::nullopt;
}

void PendingPrepares::end(PreparedKey const& key, Status status) {
    std::lock_guard const lock(mutex_);
    auto const known = find(key);
    if (status.ok())
        prepares_.erase(known);
    else
        known->failure = std::move(status);
    ended_.notify_all();
}

std::optional<Status> PendingPrepares::wait(PreparedKey const& key, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    auto const has_ended = [&] {
        auto const known = find(key);
        return known == prepares_.end() || known->failure;
    };
    if (!ended_.wait_for(lock, limit, has_ended))
        return Status(XQAJIT_NOT_PREPARED, fmt::format("still being prepared in the background after {} ms", limit.count()));
    auto const known = find(key);
    return known == prepares_.end() ? std::nullopt : known->failure;
}

}  // namespace xqajit
