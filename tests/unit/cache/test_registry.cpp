#include "cache/registry.h"

#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "catch.h"

using namespace xqajit;
using xqajit::cache::Registry;

namespace {

struct Key {
    std::uint64_t number = 0;
    std::uint64_t hash_value = 0;
    bool operator==(Key const&) const = default;
    std::uint64_t hash() const { return hash_value; }
};

Key key_of(std::uint64_t number) { return {number, number}; }

struct Value {
    std::uint64_t number;
};

using TestRegistry = Registry<Key, Value>;
using Built = Result<std::unique_ptr<Value>>;

Built value_of(std::uint64_t number) { return std::make_unique<Value>(Value{number}); }

// Lets `count` threads into a call at once; a thread that waits in the registry cannot be seen, so that none is waited for there.
class Gate {
public:
    explicit Gate(int count) : missing_(count) {}
    void pass() {
        std::unique_lock lock(mutex_);
        if (--missing_ == 0) open_.notify_all();
        open_.wait(lock, [&] { return missing_ <= 0; });
    }

private:
    std::mutex mutex_;
    std::condition_variable open_;
    int missing_;
};

void run_threads(int count, std::function<void(int)> const& body) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < count; ++thread) threads.emplace_back(body, thread);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("a value is built once and found from then on, at one address", "[registry]") {
    TestRegistry registry;
    int builds = 0;
    CHECK(registry.find(key_of(1)) == nullptr);
    CHECK(registry.size() == 0);
    Value* first = nullptr;
    for (int round = 0; round < 3; ++round) {
        Result<Value*> const got = registry.get_or_build(key_of(1), [&] { return ++builds, value_of(7); });
        REQUIRE(got.ok());
        if (first == nullptr) first = *got;
        CHECK(*got == first);
        CHECK(registry.find(key_of(1)) == first);
    }
    CHECK(first->number == 7);
    CHECK(builds == 1);
    CHECK(registry.size() == 1);
    CHECK(registry.find(key_of(2)) == nullptr);
}

TEST_CASE("values keep their addresses while the table grows, whatever the hashes", "[registry]") {
    struct Spread {
        char const* name;
        std::uint64_t (*hash)(std::uint64_t);
    };
    for (Spread const& spread :
         {Spread{"own", [](std::uint64_t n) { return n; }}, Spread{"all equal", [](std::uint64_t) { return std::uint64_t{5}; }},
          Spread{"high bits", [](std::uint64_t n) { return n << 48; }}}) {
        INFO(spread.name);
        constexpr std::uint64_t kCount = 1000;
        TestRegistry registry;
        std::vector<Value*> values;
        for (std::uint64_t n = 0; n < kCount; ++n) {
            CHECK(registry.find({n, spread.hash(n)}) == nullptr);
            values.push_back(*registry.get_or_build({n, spread.hash(n)}, [&] { return value_of(n); }));
        }
        CHECK(registry.size() == kCount);
        bool all_found = true;
        for (std::uint64_t n = 0; n < kCount; ++n)
            all_found = all_found && registry.find({n, spread.hash(n)}) == values[n] && values[n]->number == n;
        CHECK(all_found);
    }
}

TEST_CASE("a failed build is told and forgotten", "[registry][J24]") {
    struct Case {
        std::function<Built()> build;
        xqajit_status code;
        char const* text;
    };
    std::vector<Case> const cases = {
        {[] { return Built(Status(XQAJIT_COMPILE_FAILED, "no such type", "log")); }, XQAJIT_COMPILE_FAILED, "no such type"},
        {[]() -> Built { throw std::runtime_error("out of ideas"); }, XQAJIT_INTERNAL, "out of ideas"},
        {[]() -> Built { throw 5; }, XQAJIT_INTERNAL, "threw"},
        {[] { return Built(std::unique_ptr<Value>()); }, XQAJIT_INTERNAL, "no value"},
    };
    TestRegistry registry;
    for (Case const& c : cases) {
        Result<Value*> const got = registry.get_or_build(key_of(1), c.build);
        CHECK(got.status().code() == c.code);
        CHECK(got.status().message().find(c.text) != std::string::npos);
        CHECK(registry.find(key_of(1)) == nullptr);
        CHECK(registry.size() == 0);
    }
    CHECK(registry.get_or_build(key_of(1), [] { return value_of(1); }).ok());
}

TEST_CASE("a build may ask for other keys, not for its own", "[registry]") {
    TestRegistry registry;
    Status own;
    Result<Value*> const outer = registry.get_or_build(key_of(1), [&]() -> Built {
        own = registry.get_or_build(key_of(1), [] { return value_of(0); }).status();
        Result<Value*> const inner = registry.get_or_build(key_of(2), [] { return value_of(2); });
        if (!inner.ok()) return inner.status();
        return value_of((*inner)->number + 10);
    });
    REQUIRE(outer.ok());
    CHECK((*outer)->number == 12);
    CHECK(own.code() == XQAJIT_INTERNAL);
    CHECK(registry.size() == 2);
}

TEST_CASE("64 threads with one key make one build and share its value", "[registry][J24]") {
    for (int round = 0; round < 10; ++round) {
        TestRegistry registry;
        Gate gate(64);
        std::atomic<int> builds{0};
        std::vector<Value*> values(64);
        run_threads(64, [&](int thread) {
            gate.pass();
            Result<Value*> const got = registry.get_or_build(key_of(1), [&] {
                ++builds;
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                return value_of(1);
            });
            values[static_cast<std::size_t>(thread)] = got.ok() ? *got : nullptr;
        });
        CHECK(builds == 1);
        CHECK(values == std::vector<Value*>(64, registry.find(key_of(1))));
        CHECK(values[0] != nullptr);
    }
}

TEST_CASE("64 threads with 16 keys make one build a key, and the one that fails fails for its waiters alone", "[registry][J24]") {
    constexpr std::uint64_t kFailing = 5;
    TestRegistry registry;
    Gate gate(64);
    std::array<std::atomic<int>, 16> builds{};
    std::atomic<int> wrong{0};
    std::atomic<int> failures{0};
    run_threads(64, [&](int thread) {
        std::uint64_t const number = static_cast<std::uint64_t>(thread) % 16;
        gate.pass();
        Result<Value*> const got = registry.get_or_build(key_of(number), [&]() -> Built {
            ++builds[number];
            if (number == kFailing) return Status(XQAJIT_COMPILE_FAILED, "key 5 is wrong");
            return value_of(number);
        });
        if (number == kFailing) {
            if (got.status().code() == XQAJIT_COMPILE_FAILED && got.status().message() == "key 5 is wrong") ++failures;
        } else if (!got.ok() || (*got)->number != number) {
            ++wrong;
        }
    });
    CHECK(wrong == 0);
    CHECK(failures == 4);
    for (std::uint64_t number = 0; number < 16; ++number)
        if (number != kFailing) CHECK(builds[number] == 1);
    CHECK(registry.size() == 15);
    Result<Value*> const retried = registry.get_or_build(key_of(kFailing), [] { return value_of(kFailing); });
    CHECK(retried.ok());
    CHECK(registry.size() == 16);
}

TEST_CASE("those who wait for a build share its failure", "[registry][J24]") {
    TestRegistry registry;
    std::atomic<int> builds{0};
    std::atomic<int> started{0};
    std::atomic<int> shared{0};
    // The build outlasts the start of every thread by far more than a thread needs to begin to wait; a straggler builds anew, and
    // fails alike.
    run_threads(8, [&](int) {
        ++started;
        Result<Value*> const got = registry.get_or_build(key_of(1), [&]() -> Built {
            ++builds;
            while (started < 8) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            return Status(XQAJIT_COMPILE_FAILED, "wrong");
        });
        if (got.status().message() == "wrong") ++shared;
    });
    CHECK(shared == 8);
    CHECK(builds < 8);
    CHECK(registry.size() == 0);
}

TEST_CASE("other keys are built and found while one is being built", "[registry][J24]") {
    TestRegistry registry;
    REQUIRE(registry.get_or_build(key_of(1), [] { return value_of(1); }).ok());
    Gate building(2);
    Gate others_done(2);
    std::thread slow([&] {
        (void)registry.get_or_build(key_of(2), [&] {
            building.pass();
            others_done.pass();  // ends only once the others went through
            return value_of(2);
        });
    });
    building.pass();
    CHECK(registry.find(key_of(1)) != nullptr);
    CHECK(registry.find(key_of(2)) == nullptr);
    CHECK(registry.get_or_build(key_of(3), [] { return value_of(3); }).ok());
    others_done.pass();
    slow.join();
    CHECK(registry.find(key_of(2)) != nullptr);
}

TEST_CASE("readers find every published value while the table grows", "[registry][J24]") {
    constexpr std::uint64_t kCount = 3000;
    TestRegistry registry;
    std::atomic<std::uint64_t> published{0};
    std::atomic<int> wrong{0};
    run_threads(5, [&](int thread) {
        if (thread == 0) {
            for (std::uint64_t n = 0; n < kCount; ++n) {
                (void)registry.get_or_build(key_of(n), [&] { return value_of(n); });
                published.store(n + 1, std::memory_order_release);
            }
            return;
        }
        for (std::uint64_t seen = 0; seen < kCount;) {
            seen = published.load(std::memory_order_acquire);
            for (std::uint64_t n = 0; n < seen; n += 1 + seen / 16) {
                Value const* const value = registry.find(key_of(n));
                if (value == nullptr || value->number != n) ++wrong;
            }
        }
    });
    CHECK(wrong == 0);
    CHECK(registry.size() == kCount);
}

TEST_CASE("values die with the registry", "[registry]") {
    struct Counted {
        explicit Counted(int& live) : live_(live) { ++live_; }
        ~Counted() { --live_; }
        int& live_;
    };
    int live = 0;
    {
        Registry<Key, Counted> registry;
        for (std::uint64_t n = 0; n < 100; ++n)
            (void)registry.get_or_build(key_of(n),
                                        [&]() -> Result<std::unique_ptr<Counted>> { return std::make_unique<Counted>(live); });
        CHECK(live == 100);
    }
    CHECK(live == 0);
}
