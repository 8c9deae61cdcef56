// What a service does while its callers go on: threads of its own, and which prepares they have under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "service/prepared_key.h"

namespace xqajit {

// Thread-safe. Threads are started as jobs come, up to a few, and stay until the end: the first job costs one, no job costs none.
class Background {
public:
    Background() = default;
    Background(Background const&) = delete;
    ~Background() { stop(); }

    // First come, first served; jobs do not throw. UNAVAILABLE where no thread can be started, or after stop().
    Status add(std::function<void()> job);
    // Drops the jobs that have not begun, and waits for those that have: whoever calls this has told them to end.
    void stop() noexcept;

private:
    void work() noexcept;

    std::mutex mutex_;  // guards what follows
    std::condition_variable added_;
    std::deque<std::function<void()>> jobs_;
    std::vector<std::thread> threads_;
    std::size_t idle_ = 0;  // threads that wait for a job
    bool stopping_ = false;
};

// Thread-safe. The prepares that run in the background, and those that failed there: of one that ended well nothing is kept.
class PendingPrepares {
public:
    // nullopt: the caller is to do it, and to call end(). Else OK while it is under way, or why it failed; `again` forgets a failure.
    std::optional<Status> begin(PreparedKey const& key, bool again);
    void end(PreparedKey const& key, Status status);
    // nullopt: none is under way, or none is any more, and none failed. NOT_PREPARED: still under way after the limit.
    std::optional<Status> wait(PreparedKey const& key, std::chrono::milliseconds limit);

private:
    struct Prepare {
        PreparedKey key;
        std::optional<Status> failure;  // unset while it is under way
    };
    std::vector<Prepare>::iterator find(PreparedKey const& key);

    std::mutex mutex_;
    std::condition_variable ended_;
    std::vector<Prepare> prepares_;  // as many as a model has kinds of layers
};

}  // namespace xqajit
