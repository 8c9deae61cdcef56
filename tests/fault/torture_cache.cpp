// Writers and collectors that are killed at random, over cache directories that readers use meanwhile. The seed is printed, and
// TORTURE_SEED gives one: it draws what every process does and for how long it lives, but not how the kernel interleaves them.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cache/gc.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;
using State = KeyLock::State;

namespace fs = std::filesystem;

namespace {

constexpr int kKills = 1000;  // of writers
constexpr int kWriters = 4, kReaders = 2;
constexpr std::size_t kDirectories = 2, kKept = 12, kVictims = 6;
constexpr GcLimits kByAge{{}, {}, 100000, false};
constexpr long kOld = 1000000;  // seconds: what a collection by kByAge removes

// What the processes tell each other.
struct Shared {
    std::array<std::array<std::atomic<bool>, kKept>, kDirectories> published{};  // set after the store has succeeded
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> hits{0}, misses{0}, collected{0};
};

// Kept entries come first: a collection never removes one. The others are made old as soon as they are stored.
class Torture {
public:
    explicit Torture(std::uint32_t seed) : random_(seed) {
        void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        shared_ = new (memory) Shared;
        for (std::size_t number = 0; number < kKept + kVictims; ++number)
            entries_.push_back(sample_entry(static_cast<int>(number), std::size_t{1000} << number % 9));
    }
    ~Torture() { ::munmap(shared_, sizeof(Shared)); }
    Torture(Torture const&) = delete;

    void run() {
        std::array<pid_t, kWriters> writers{};
        std::array<pid_t, kDirectories> collectors{};
        std::array<pid_t, kReaders> readers{};
        for (pid_t& reader : readers) reader = start([this](std::mt19937& random) { return read(random); });
        for (int slot = 0; slot < kWriters; ++slot) writers[slot_of(slot)] = start_writer(slot);
        for (std::size_t i = 0; i < kDirectories; ++i) collectors[i] = start_collector(i);
        for (int kill = 0; kill < kKills; ++kill) {
            ::usleep(below(random_, 4000));
            int const slot = kill % kWriters;
            end_by_force(writers[slot_of(slot)]);
            for (std::size_t i = 0; i < kDirectories; ++i) {
                INFO("kill " << kill);
                REQUIRE(open_store(path(i))->lock(own_key(slot), {}).state() == State::kHeld);
            }
            writers[slot_of(slot)] = start_writer(slot);
            if (kill % 10 != 0) continue;
            std::size_t const which = below(random_, kDirectories);
            end_by_force(collectors[which]);
            collectors[which] = start_collector(which);
        }
        for (pid_t const writer : writers) end_by_force(writer);
        for (pid_t const collector : collectors) end_by_force(collector);
        shared_->stop = true;
        for (pid_t const reader : readers) CHECK(wait_child(reader) == 0);
        for (std::size_t i = 0; i < kDirectories; ++i) judge(i);
        std::printf("%llu hits, %llu misses, %llu entries collected\n", static_cast<unsigned long long>(shared_->hits),
                    static_cast<unsigned long long>(shared_->misses), static_cast<unsigned long long>(shared_->collected));
        CHECK(shared_->hits > 1000);
        CHECK(shared_->collected > 10);
    }

private:
    static std::size_t slot_of(int slot) { return static_cast<std::size_t>(slot); }
    static std::uint32_t below(std::mt19937& random, std::size_t bound) { return static_cast<std::uint32_t>(random() % bound); }
    static CacheKey own_key(int slot) { return sample_key(100 + slot); }
    std::string path(std::size_t directory) const { return temp_.path("cache" + std::to_string(directory)); }

    // Each process draws for itself. It ends with the test at the latest.
    template <class Body> pid_t start(Body const& body) {
        std::mt19937 random(static_cast<std::uint32_t>(random_()));
        return start_child([&] { return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? body(random) : 98; });
    }
    pid_t start_writer(int slot) {
        return start([this, slot](std::mt19937& random) { return write(slot, random); });
    }
    pid_t start_collector(std::size_t directory) {
        return start([this, directory](std::mt19937&) { return collect(directory); });
    }
    static void end_by_force(pid_t child) {
        ::kill(child, SIGKILL);
        REQUIRE(wait_child(child) == 1000 + SIGKILL);  // else it had ended by itself: its status says what it met
    }

    // As a compile does it: the key's lock, a look, the entry. A status is what went wrong.
    int write(int slot, std::mt19937& random) const {
        Warnings const warnings;
        while (true) {
            std::size_t const directory = below(random, kDirectories), number = below(random, entries_.size());
            Entry const& entry = entries_[number];
            auto const store = open_store(path(directory));
            KeyLock const own = store->lock(own_key(slot), {});
            if (own.state() != State::kHeld) return 10;
            KeyLock const lock = store->lock(entry.key, {std::chrono::milliseconds(below(random, 3)), nullptr});
            if (lock.state() != State::kHeld && lock.state() != State::kBusy) return 11;
            if (auto const found = store->load(entry.key); found && !same(*found, entry)) return 12;
            if (!store->store(entry).ok()) return 13;
            if (number < kKept)
                shared_->published[directory][number] = true;
            else
                make_old(file_of(*store, entry.key), kOld);
            if (warnings.count() != 0 || store->quarantined() != 0) return 14;
        }
    }

    int collect(std::size_t directory) const {
        Warnings const warnings;
        auto const store = open_store(path(directory));
        while (true) {
            Result<GcReport> const report = store->collect(kByAge);
            if (!report.ok()) return 20;
            if (!report->failed.empty()) return 21;
            if (warnings.count() != 0) return 22;
            shared_->collected += report->removed.entries.files;
            ::usleep(1000);
        }
    }

    int read(std::mt19937& random) const {
        Warnings const warnings;
        while (!shared_->stop) {
            std::size_t const directory = below(random, kDirectories);
            auto const store = open_store(path(directory));
            for (int round = 0; round < 20; ++round) {
                std::size_t const number = below(random, entries_.size());
                Entry const& entry = entries_[number];
                bool const is_published = number < kKept && shared_->published[directory][number];
                auto const found = random() % 2 == 0 ? store->load(entry.key) : store->load_any_compiler(entry.key.body);
                if (found && !same(*found, entry)) return 30;
                if (!found && is_published) return 31;
                ++(found ? shared_->hits : shared_->misses);
            }
            if (store->quarantined() != 0) return 32;
            if (warnings.count() != 0) return 33;
        }
        return 0;
    }

    // All are dead.
    void judge(std::size_t directory) const {
        INFO(path(directory));
        Warnings const warnings;
        auto const store = open_store(path(directory));
        for (int slot = 0; slot < kWriters; ++slot) CHECK(store->lock(own_key(slot), {}).state() == State::kHeld);
        for (Entry const& entry : entries_) CHECK(store->lock(entry.key, {}).state() == State::kHeld);
        CHECK(fs::is_empty(path(directory) + "/locks"));
        for (std::size_t number = 0; number < kKept; ++number) {
            auto const found = store->load(entries_[number].key);
            CHECK((!shared_->published[directory][number] || (found && same(*found, entries_[number]))));
        }
        std::vector<ListedTemporary> const left = store->list().temporaries;
        std::printf("%zu temporary files were left\n", left.size());
        CHECK(left.size() > 10);  // so many were killed in the midst of a write
        for (ListedTemporary const& file : left) make_old(file.path, kOld);
        Result<GcReport> const report = store->collect(kByAge);
        REQUIRE(report.ok());
        CHECK(report->failed.empty());
        for (Entry const& entry : entries_) CHECK(store->store(entry).ok());
        Listing const listing = store->list();
        CHECK(listing.entries.size() == entries_.size());
        for (ListedEntry const& listed : listing.entries) CHECK(listed.status.ok());
        CHECK(listing.unlisted.empty());
        CHECK(listing.temporaries.empty());
        CHECK_FALSE(fs::exists(path(directory) + "/quarantine"));
        CHECK(warnings.count() == 0);
    }

    TempDirectory const temp_;
    std::mt19937 random_;
    Shared* shared_ = nullptr;
    std::vector<Entry> entries_;
};

}  // namespace

TEST_CASE("of writers that are killed a thousand times nothing invalid is served, nothing published is lost, no lock is left",
          "[cache][torture]") {
    char const* const given = std::getenv("TORTURE_SEED");
    std::uint32_t const seed =
        given != nullptr ? static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
    std::printf("TORTURE_SEED=%u\n", seed);
    INFO("TORTURE_SEED=" << seed);
    Torture(seed).run();
}
