// Entries that come together: DiskStore::store_all().
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "catch.h"
#include "unit/cache/bundle_fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

struct Batch {
    std::vector<Entry> entries = sample_entries({1, 2, 3, 4});
    std::vector<CacheKey> keys = keys_of(entries);
    TempDirectory temp;
    std::shared_ptr<DiskStore> store = open_store(temp.path("cache"));

    static std::vector<CacheKey> keys_of(std::vector<Entry> const& entries) {
        std::vector<CacheKey> keys;
        for (Entry const& entry : entries) keys.push_back(entry.key);
        return keys;
    }
    Result<std::size_t> store_all() const {
        return store->store_all(keys, [&](std::size_t i) { return Result<Entry>(entries[i]); });
    }
    // Regular files below the cache: entries, temporary files, whatever else.
    std::size_t files() const {
        std::size_t count = 0;
        for (auto const& item : std::filesystem::recursive_directory_iterator(temp.path("cache"))) count += item.is_regular_file();
        return count;
    }
};

}  // namespace

TEST_CASE("entries that come together are all there, whole, and stay where they were already", "[cache][bundle]") {
    Batch const batch;
    Entry mine = batch.entries[1];
    mine.metadata = "{\"mine\": true}";
    REQUIRE(batch.store->store(mine).ok());
    Result<std::size_t> const stored = batch.store_all();
    REQUIRE(stored.ok());
    CHECK(*stored == 3);
    CHECK(same(*batch.store->load(mine.key), mine));
    for (std::size_t const i : {0, 2, 3}) CHECK(same(*batch.store->load(batch.keys[i]), batch.entries[i]));
    CHECK(batch.files() == 4);
    CHECK(*batch.store_all() == 0);
    CHECK(*batch.store->store_all({}, [](std::size_t) { return Result<Entry>(Entry{}); }) == 0);
}

TEST_CASE("a damaged entry is replaced by one that comes", "[cache][bundle][J07]") {
    Batch const batch;
    REQUIRE(batch.store->store(batch.entries[0]).ok());
    write_raw(file_of(*batch.store, batch.keys[0]), "damaged");
    Warnings const warnings;
    CHECK(*batch.store_all() == 4);
    CHECK(same(*batch.store->load(batch.keys[0]), batch.entries[0]));
}

TEST_CASE("where one of several entries is refused none of them is kept", "[cache][bundle]") {
    for (std::size_t bad = 0; bad < 4; ++bad)
        for (bool const breaks_limit : {false, true}) {
            Batch const batch;
            Result<std::size_t> const stored = batch.store->store_all(batch.keys, [&](std::size_t i) -> Result<Entry> {
                if (i != bad) return batch.entries[i];
                if (!breaks_limit) return Status(XQAJIT_CACHE_CORRUPT, "refused");
                return Entry{batch.keys[i], "", false, ""};
            });
            REQUIRE(!stored.ok());
            CHECK(stored.status().code() == (breaks_limit ? XQAJIT_INVALID_ARGUMENT : XQAJIT_CACHE_CORRUPT));
            CHECK(batch.files() == 0);
        }
}

TEST_CASE("where one of several entries cannot get its name all are taken back", "[cache][bundle]") {
    for (std::size_t blocked = 0; blocked < 4; ++blocked) {
        Batch const batch;
        std::string const obstacle = file_of(*batch.store, batch.keys[blocked]);
        Result<std::size_t> const stored = batch.store->store_all(batch.keys, [&](std::size_t i) -> Result<Entry> {
            if (i == 3) {  // all others are staged
                std::filesystem::create_directories(obstacle);
                write_raw(obstacle + "/x", "x");
            }
            return batch.entries[i];
        });
        // The last is looked at after that: what stands in its place was set aside.
        if (blocked == 3) {
            CHECK(stored.ok());
            continue;
        }
        REQUIRE(!stored.ok());
        CHECK(stored.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(stored.status().message().find(obstacle) != std::string::npos);
        for (CacheKey const& key : batch.keys) CHECK_FALSE(batch.store->peek(key));
        CHECK(batch.files() == 1);  // the obstacle's
        CHECK(batch.store->list().temporaries.empty());
    }
}

TEST_CASE("what another process stored while several entries were staged is not taken back", "[cache][bundle]") {
    // The first is published, then another process replaces it, then the second fails. Between these steps there is no place to act: an
    // entry that is there before they begin, but after it was looked for, goes the same way.
    Batch const batch;
    Entry other = batch.entries[0];
    other.metadata = "{\"another process\": 1}";
    Result<std::size_t> const stored = batch.store->store_all(batch.keys, [&](std::size_t i) -> Result<Entry> {
        if (i < 3) return batch.entries[i];
        REQUIRE(batch.store->store(other).ok());
        return Status(XQAJIT_CACHE_CORRUPT, "refused");
    });
    CHECK(!stored.ok());
    std::optional<Entry> const left = batch.store->load(other.key);
    REQUIRE(left);
    CHECK(same(*left, other));
    CHECK(batch.files() == 1);
}

TEST_CASE("entries for a directory that cannot be written are refused before they are read", "[cache][bundle]") {
    Batch const batch;
    write_raw(batch.temp.path("cache"), "a file");
    auto const store = open_store(batch.temp.path("cache"));
    Result<std::size_t> const stored = store->store_all(batch.keys, [](std::size_t) -> Result<Entry> { throw 1; });
    CHECK(stored.status().code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("an importer that is killed leaves whole entries and temporary files, and the next one ends it", "[cache][bundle][J07]") {
    Batch batch;
    std::vector<int> numbers(64);
    std::iota(numbers.begin(), numbers.end(), 1);
    batch.entries = sample_entries(numbers);
    batch.keys = Batch::keys_of(batch.entries);
    for (int round = 0; round < 20; ++round) {
        pid_t const child = start_child([&] {
            while (true) {
                std::filesystem::remove_all(batch.temp.path("cache"));
                if (!batch.store_all().ok()) return 1;
            }
        });
        ::usleep(static_cast<useconds_t>(1000 + 997 * round));
        ::kill(child, SIGKILL);
        CHECK(wait_child(child) == 1000 + SIGKILL);
        auto const store = open_store(batch.temp.path("cache"));
        Listing const listing = store->list();
        CHECK(listing.unlisted.empty());
        for (ListedEntry const& entry : listing.entries) CHECK(entry.status.ok());
    }
    REQUIRE(batch.store_all().ok());
    for (Entry const& entry : batch.entries) CHECK(same(*batch.store->load(entry.key), entry));
}

TEST_CASE("several processes that import the same entries all succeed", "[cache][bundle][J01]") {
    Batch const batch;
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
        children.push_back(start_child([&] {
            Result<std::size_t> const stored = open_store(batch.temp.path("cache"))->store_all(batch.keys, [&](std::size_t k) {
                return Result<Entry>(batch.entries[k]);
            });
            return stored.ok() ? 0 : 1;
        }));
    }
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    for (Entry const& entry : batch.entries) CHECK(same(*batch.store->load(entry.key), entry));
    CHECK(batch.files() == 4);
}
