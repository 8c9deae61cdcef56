// Who makes the image of a key, among the processes that share a cache directory: flock(2) on <dir>/locks/<body>-<compiler>.lock.
// The kernel frees the lock of a process that dies, so that a file which is left there holds up nobody.
#pragma once

#include <sys/file.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "cache/entry.h"

namespace xqajit::cache {

inline constexpr char kLockFolder[] = "locks";

struct LockWait {
    std::chrono::milliseconds limit{0};  // 0: no wait
    // Called once, on the waiting thread, when the wait has lasted a second, or half its limit if that is less. May be empty.
    std::function<void()> still_waiting;
    // Asked while waiting: true ends the wait, as its limit would. May be empty.
    std::function<bool()> is_stopped = {};
};

// Held until it is destroyed, by the object and not by its thread: two of one process exclude each other too, and a thread that asks
// for a key which it holds waits for itself. Not for use by several threads at once. A program that is started meanwhile
// inherits nothing. A child that is forked keeps nothing past the release; only of a holder that is killed it keeps the lock to its end.
class KeyLock {
public:
    enum class State {
        kHeld,
        kBusy,      // another's, still so at the end of the wait
        kUnmade,    // no lock file can be made here, as no entry could be: a full disk, a directory of others
        kRefused,   // locks do not work here (ENOLCK), or something else stands in the file's place
        kAbandoned  // another held it, and abandoned it: its failure will be everybody's
    };
    // flock(2), or what stands for it in a test.
    using FlockCall = int (*)(int fd, int operation);

    // directory: of the cache. Makes the folder and the file where they are missing. Never fails: state() says what came of it.
    static KeyLock take(int directory, CacheKey const& key, LockWait const& wait, FlockCall call = ::flock);
    // No lock, for a reason that was known before.
    static KeyLock none(State state, Status reason);

    KeyLock(KeyLock&&) noexcept = default;
    KeyLock& operator=(KeyLock&&) = delete;
    ~KeyLock();

    State state() const { return state_; }
    bool waited() const { return waited_; }           // met another holder, whatever came of it
    Status const& reason() const { return reason_; }  // of kUnmade and kRefused

    // What the key is held for failed, and would for those who wait now: each goes on alone, at once. They would fail one after another.
    void abandon();

private:
    KeyLock() = default;
    void take_named(FlockCall call, LockWait const& wait);
    bool settle();
    bool open_file();
    bool refuse(State state, Status reason);
    bool is_named() const;

    UniqueFd folder_;
    UniqueFd file_;
    std::string name_;
    pid_t owner_ = 0;
    State state_ = State::kBusy;
    bool waited_ = false;
    Status reason_;
};

}  // namespace xqajit::cache
