// One lock a key: who has it, who waits, and how a wait ends.
#include <sys/file.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "base/file.h"
#include "cache/directory.h"
#include "cache/key_lock.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;
using State = KeyLock::State;
using std::chrono::milliseconds;

namespace {

struct Directory {
    TempDirectory temp;
    OpenedRoot root = open_root(temp.path(), /*create=*/false).value();

    KeyLock take(CacheKey const& key, LockWait const& wait = {}) const { return KeyLock::take(root.directory.get(), key, wait); }
    bool has_locks() const { return !std::filesystem::is_empty(temp.path("locks")); }
};

int injected_error = 0;
int injections_left = 0;
int failing_flock(int fd, int operation) {
    if (injections_left-- <= 0) return ::flock(fd, operation);
    errno = injected_error;
    return -1;
}

}  // namespace

TEST_CASE("a key has one holder, and its lock file goes with it", "[cache][J22]") {
    Directory const directory;
    {
        KeyLock const first = directory.take(sample_key(1));
        CHECK(first.state() == State::kHeld);
        CHECK_FALSE(first.waited());
        CHECK(mode_of(directory.temp.path("locks")) == 0700);
        for (auto const& file : std::filesystem::directory_iterator(directory.temp.path("locks")))
            CHECK(mode_of(file.path()) == 0600);
        KeyLock const second = directory.take(sample_key(1));
        CHECK(second.state() == State::kBusy);
        CHECK(second.waited());
        CHECK(directory.has_locks());
    }
    CHECK_FALSE(directory.has_locks());
    CHECK(directory.take(sample_key(1)).state() == State::kHeld);
}

TEST_CASE("neither another body nor another compiler is waited for", "[cache][J22]") {
    Directory const directory;
    KeyLock const first = directory.take(sample_key(1, 0));
    LockWait const wait{milliseconds(60000), [] { FAIL("waits"); }};
    KeyLock const body = directory.take(sample_key(2, 0), wait);
    KeyLock const compiler = directory.take(sample_key(1, 1), wait);
    for (KeyLock const* each : {&body, &compiler}) {
        CHECK(each->state() == State::kHeld);
        CHECK_FALSE(each->waited());
    }
}

TEST_CASE("a wait is told of once and ends at its limit", "[cache][J22]") {
    Directory const directory;
    KeyLock const held = directory.take(sample_key(1));
    int told = 0;
    for (milliseconds const limit : {milliseconds(0), milliseconds(100)}) {
        told = 0;
        auto const start = std::chrono::steady_clock::now();
        KeyLock const late = directory.take(sample_key(1), {limit, [&] { ++told; }});
        CHECK(std::chrono::steady_clock::now() - start >= limit);
        CHECK(late.state() == State::kBusy);
        CHECK(told == (limit.count() != 0 ? 1 : 0));
    }
    CHECK(directory.take(sample_key(1), {milliseconds(1), nullptr}).state() == State::kBusy);
}

TEST_CASE("a wait that is stopped ends long before its limit", "[cache][J22]") {
    Directory const directory;
    KeyLock const holder = directory.take(sample_key(1));
    int asked = 0;
    KeyLock const waiter = directory.take(sample_key(1), {std::chrono::hours(1), {}, [&] { return ++asked == 3; }});
    CHECK(waiter.state() == State::kBusy);
    CHECK(waiter.waited());
    CHECK(asked == 3);
}

TEST_CASE("a waiter has the lock once the holder lets go", "[cache][J22]") {
    Directory const directory;
    std::optional<KeyLock> held(directory.take(sample_key(1)));
    std::thread waiter([&] {
        KeyLock const lock = directory.take(sample_key(1), {milliseconds(60000), nullptr});
        CHECK(lock.state() == State::kHeld);
        CHECK(lock.waited());
    });
    std::this_thread::sleep_for(milliseconds(50));
    held.reset();
    waiter.join();
    CHECK_FALSE(directory.has_locks());
}

TEST_CASE("what a holder abandons holds up none that waited, and none that comes later", "[cache][J22]") {
    Directory const directory;
    std::optional<KeyLock> held(directory.take(sample_key(1)));
    std::atomic<int> abandoned{0};
    std::vector<std::thread> waiters;
    for (int i = 0; i < 8; ++i)
        waiters.emplace_back([&] {
            KeyLock const lock = directory.take(sample_key(1), {milliseconds(60000), nullptr});
            abandoned += lock.state() == State::kAbandoned;
        });
    std::this_thread::sleep_for(milliseconds(300));
    held->abandon();
    held.reset();
    for (std::thread& waiter : waiters) waiter.join();
    CHECK(abandoned == 8);
    CHECK(directory.take(sample_key(1)).state() == State::kHeld);
}

TEST_CASE("threads of one process exclude each other", "[cache][J24]") {
    Directory const directory;
    std::atomic<int> inside{0}, overlaps{0}, held{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            for (int round = 0; round < 50; ++round) {
                KeyLock const lock = directory.take(sample_key(1), {milliseconds(60000), nullptr});
                held += lock.state() == State::kHeld;
                overlaps += ++inside != 1;
                --inside;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(held == 8 * 50);
    CHECK(overlaps == 0);
    CHECK_FALSE(directory.has_locks());
}

TEST_CASE("where locks do not work there is none, and the reason is named", "[cache][J22]") {
    Directory const directory;
    for (auto const& [error, name] : {std::pair(ENOLCK, "ENOLCK"), std::pair(EOPNOTSUPP, "EOPNOTSUPP"), std::pair(EINVAL, "EINVAL"),
                                      std::pair(ESTALE, "ESTALE")}) {
        INFO(name);
        injected_error = error;
        injections_left = 1;
        KeyLock const lock =
            KeyLock::take(directory.root.directory.get(), sample_key(1), {milliseconds(60000), nullptr}, failing_flock);
        CHECK(lock.state() == State::kRefused);
        CHECK_FALSE(lock.waited());
        CHECK(lock.reason().message().find(name) != std::string::npos);
    }
}

TEST_CASE("an interrupted call is made again", "[cache][J22]") {
    Directory const directory;
    injected_error = EINTR;
    injections_left = 3;
    CHECK(KeyLock::take(directory.root.directory.get(), sample_key(1), {}, failing_flock).state() == State::kHeld);
    CHECK(injections_left < 0);
}
