#include "cache/key_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "cache/directory.h"

namespace xqajit::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Read and write: over NFS an exclusive lock needs a descriptor that may write. O_NONBLOCK: a FIFO under the name must not hang.
constexpr int kLockFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
// A waiter asks again after these: a compile takes a second, and a holder of an image that is there already a millisecond.
constexpr milliseconds kFirstPause{1};
constexpr milliseconds kLongestPause{25};
constexpr milliseconds kQuietWait{1000};
// Each time the file had lost its name, a holder had come and gone. More often than this, names do not mean here what they should.
constexpr int kRenewals = 1000;

}  // namespace

KeyLock KeyLock::none(State state, Status reason) {
    KeyLock lock;
    lock.refuse(state, std::move(reason));
    return lock;
}

KeyLock KeyLock::take(int directory, CacheKey const& key, LockWait const& wait, FlockCall call) {
    KeyLock lock;
    Result<UniqueFd> folder = open_folder_at(directory, kLockFolder, /*create=*/true);
    if (!folder.ok()) {
        lock.refuse(folder.status().code() == XQAJIT_UNAVAILABLE ? State::kUnmade : State::kRefused, folder.status());
        return lock;
    }
    lock.folder_ = std::move(*folder);
    lock.name_ = fmt::format("{}-{}.lock", key.body.hex(), key.compiler.hex());
    lock.take_named(call, wait);
    return lock;
}

void KeyLock::take_named(FlockCall call, LockWait const& wait) {
    Clock::time_point const start = Clock::now();
    milliseconds const quiet = std::min(kQuietWait, wait.limit / 2);
    bool told = false;
    int renewals = 0;
    for (milliseconds pause = kFirstPause;;) {
        if (!file_.valid() && !open_file()) return;
        if (call(file_.get(), LOCK_EX | LOCK_NB) == 0) {
            if (settle()) return;
            if (++renewals < kRenewals) continue;
            refuse(State::kRefused, unavailable(fmt::format("{}/{} does not keep its name", kLockFolder, name_)));
            return;
        }
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) {
            refuse(State::kRefused, unavailable(fmt::format("{}/{}: flock: {}", kLockFolder, name_, errno_text(errno))));
            return;
        }
        waited_ = true;
        auto const elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
        if (elapsed >= wait.limit || (wait.is_stopped && wait.is_stopped())) {
            file_ = UniqueFd();
            return;  // kBusy
        }
        if (!told && elapsed >= quiet) {
            told = true;
            if (wait.still_waiting) wait.still_waiting();
        }
        std::this_thread::sleep_for(std::min(pause, wait.limit - elapsed));
        pause = std::min(2 * pause, kLongestPause);
    }
}

// The file is locked. Whether that is the end: not if the name is another file's by now, or nobody's.
bool KeyLock::settle() {
    struct stat file {};
    bool const leftover = ::fstat(file_.get(), &file) == 0 && file.st_size != 0;
    if (is_named()) {
        if (leftover) [[maybe_unused]]
            int const cut = ::ftruncate(file_.get(), 0);
        owner_ = ::getpid();
        state_ = State::kHeld;
        return true;
    }
    ::flock(file_.get(), LOCK_UN);
    file_ = UniqueFd();
    if (leftover && waited_) state_ = State::kAbandoned;
    return state_ == State::kAbandoned;
}

// Opens it, or refuses.
bool KeyLock::open_file() {
    std::string const what = fmt::format("{}/{}", kLockFolder, name_);
    file_ = above_standard(::openat(folder_.get(), name_.c_str(), kLockFlags, 0600));
    if (!file_.valid()) {
        bool const something_else = errno == ELOOP || errno == EISDIR || errno == ENXIO;
        return refuse(something_else ? State::kRefused : State::kUnmade, unavailable(what + ": " + errno_text(errno)));
    }
    struct stat file {};
    if (::fstat(file_.get(), &file) != 0) return refuse(State::kRefused, unavailable(what + ": " + errno_text(errno)));
    if (!S_ISREG(file.st_mode)) return refuse(State::kRefused, unavailable(what + " is not a regular file"));
    if (std::string const reason = distrust(file); !reason.empty())
        return refuse(State::kRefused, unavailable(what + " " + reason));
    return true;
}

// False, for open_file().
bool KeyLock::refuse(State state, Status reason) {
    file_ = UniqueFd();
    state_ = state;
    reason_ = std::move(reason);
    return false;
}

bool KeyLock::is_named() const {
    struct stat named {};
    struct stat held {};
    return ::fstatat(folder_.get(), name_.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && ::fstat(file_.get(), &held) == 0 &&
           named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

void KeyLock::abandon() {
    if (state_ == State::kHeld) (void)write_all(file_.get(), "failed");  // if not, the others wait for each other
}

// The name goes while the lock is held: who gets the lock of a file without its name knows by is_named() to begin anew.
KeyLock::~KeyLock() {
    if (!file_.valid() || owner_ != ::getpid()) return;  // a forked child's copy holds nothing
    if (is_named()) ::unlinkat(folder_.get(), name_.c_str(), 0);
    ::flock(file_.get(), LOCK_UN);  // not only close: a forked child may have the descriptor too
}

}  // namespace xqajit::cache
