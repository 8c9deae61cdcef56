#include "cache/disk_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

TEST_CASE("a stored entry is loaded by every later store of the directory", "[cache]") {
    TempDirectory const temp;
    Warnings const warnings;
    Entry const entry = sample_entry(1, 128 << 10);
    {
        auto const store = open_store(temp.path("cache"));
        CHECK(!store->load(entry.key));
        REQUIRE(store->store(entry).ok());
        auto const loaded = store->load(entry.key);
        REQUIRE(loaded);
        CHECK(same(*loaded, entry));
    }
    auto const again = open_store(temp.path("cache"));
    auto const loaded = again->load(entry.key);
    REQUIRE(loaded);
    CHECK(same(*loaded, entry));
    CHECK(!again->load(sample_key(2)));
    CHECK(!again->load(sample_key(1, 1)));
    CHECK(again->quarantined() == 0);
    CHECK(warnings.count() == 0);
}

TEST_CASE("entries lie at two digits, body, compiler, for their owner alone", "[cache]") {
    TempDirectory const temp;
    mode_t const before = ::umask(0);
    auto const store = open_store(temp.path("cache"));
    Entry const entry = sample_entry(1);
    CHECK(store->store(entry).ok());
    ::umask(before);

    CHECK(store->state().effective_path == temp.path("cache"));
    CHECK(store->origin().path == temp.path("cache"));
    CHECK(store->origin().origin == "argument");
    std::filesystem::path const file = file_of(*store, entry.key);
    CHECK(read_raw(file) == encode_entry(entry));
    CHECK(mode_of(file) == 0600);
    for (auto folder = file.parent_path(); folder != temp.path(); folder = folder.parent_path()) CHECK(mode_of(folder) == 0700);
    CHECK(std::distance(std::filesystem::directory_iterator(file.parent_path()), {}) == 1);
}

TEST_CASE("storing again replaces", "[cache]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    Entry entry = sample_entry(1, 5000);
    CHECK(store->store(entry).ok());
    entry.image = "shorter";
    CHECK(store->store(entry).ok());
    auto const loaded = store->load(entry.key);
    REQUIRE(loaded);
    CHECK(same(*loaded, entry));
    CHECK(store->list().entries.size() == 1);
}

TEST_CASE("an entry beyond the format's limits is not written", "[cache]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    Entry entry = sample_entry(1);
    entry.image.clear();
    CHECK(store->store(entry).code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(store->list().entries.empty());
    CHECK(warnings.count() == 1);
}

TEST_CASE("of the entries of any compiler the best is loaded", "[cache]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    std::vector<std::string> const best_first = {
        R"({"nvrtc_version": "13.0", "created": "2025-01-02T00:00:00Z"})",
        R"({"nvrtc_version": "13.0", "created": "2025-01-01T00:00:00Z"})",
        R"({"nvrtc_version": "12.9", "created": "2026-01-01T00:00:00Z"})",
        R"({"nvrtc_version": "9.0", "created": "2027-01-01T00:00:00Z"})",
        "not JSON",
    };
    for (int const compiler : {3, 0, 4, 2, 1}) {
        Entry entry = sample_entry(1, 100, compiler);
        entry.metadata = best_first[static_cast<std::size_t>(compiler)];
        REQUIRE(store->store(entry).ok());
    }
    REQUIRE(store->store(sample_entry(2)).ok());

    for (std::string const& best : best_first) {
        auto const entry = store->load_any_compiler(sample_key(1).body);
        REQUIRE(entry);
        CHECK(entry->metadata == best);
        REQUIRE(std::filesystem::remove(file_of(*store, entry->key)));
    }
    CHECK(!store->load_any_compiler(sample_key(1).body));
}

TEST_CASE("a bad entry among those of any compiler is set aside", "[cache]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    for (int const compiler : {0, 1, 2}) REQUIRE(store->store(sample_entry(1, 100, compiler)).ok());
    write_raw(file_of(*store, sample_key(1, 1)), "damaged");
    for (int round = 0; round < 2; ++round) {
        CHECK(store->load_any_compiler(sample_key(1).body));
        CHECK(store->quarantined() == 1);
        CHECK(warnings.count() == 1);
    }
}

TEST_CASE("a peek gives what a load gives, and leaves a bad entry in place", "[cache][J07]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    REQUIRE(store->store(sample_entry(1)).ok());
    CHECK(store->peek(sample_key(1)));
    CHECK(store->peek_any_compiler(sample_key(1).body));
    std::string const file = file_of(*store, sample_key(1));
    write_raw(file, "damaged");
    CHECK(!store->peek(sample_key(1)));
    CHECK(!store->peek_any_compiler(sample_key(1).body));
    CHECK(read_raw(file) == "damaged");
    CHECK(store->quarantined() == 0);
    CHECK(warnings.count() == 0);
}

TEST_CASE("the list has every entry in order of keys, the bad ones with the reason, and nothing else", "[cache]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    for (int number = 0; number < 20; ++number)
        for (int const compiler : {0, 1}) REQUIRE(store->store(sample_entry(number, 100, compiler)).ok());
    CacheKey const bad = sample_key(7, 1);
    std::string const bad_file = file_of(*store, bad);
    write_raw(bad_file, "damaged");

    std::string const folder = std::filesystem::path(bad_file).parent_path();
    write_raw(folder + "/.tmp-1-1", encode_entry(sample_entry(7)));
    write_raw(folder + "/notes.xqa", "x");
    write_raw(folder + "/ABCDEFABCDEFABCDEFABCDEFABCDEFAB.xqa", "x");
    write_raw(temp.path("README"), "x");
    std::filesystem::create_directories(temp.path("quarantine/x"));
    std::filesystem::create_directories(temp.path("zz/" + bad.body.hex()));
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path() / std::string(32, '0'));

    std::vector<ListedEntry> const listed = store->list().entries;
    CHECK(listed.size() == 40);
    CHECK(std::is_sorted(listed.begin(), listed.end(), [](auto const& left, auto const& right) { return left.key < right.key; }));
    for (ListedEntry const& entry : listed) {
        INFO(entry.path << ": " << entry.status.message());
        CHECK(entry.path == file_of(*store, entry.key));
        CHECK(entry.bytes == std::filesystem::file_size(entry.path));
        CHECK(entry.status.code() == (entry.key == bad ? XQAJIT_CACHE_CORRUPT : XQAJIT_OK));
        CHECK(entry.metadata.empty() == (entry.key == bad));
    }
    CHECK(std::count_if(listed.begin(), listed.end(), [](auto const& entry) { return entry.is_ptx; }) == 19);
    CHECK(read_raw(bad_file) == "damaged");  // listing moves nothing
    CHECK(store->quarantined() == 0);
}

TEST_CASE("a store without a directory misses, warns once and says why", "[cache][J12]") {
    Warnings const warnings;
    auto const store = DiskStore::disabled("HOME is not set");
    CHECK(!store->state().usable);
    CHECK(!store->state().writable);
    CHECK(store->state().reason == "HOME is not set");
    CHECK(!store->load(sample_key(1)));
    CHECK(!store->load_any_compiler(sample_key(1).body));
    CHECK(store->list().entries.empty());
    CHECK(warnings.count() == 0);
    for (int round = 0; round < 3; ++round) {
        Status const status = store->store(sample_entry(1));
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(status.message() == "HOME is not set");
    }
    CHECK(warnings.count() == 1);
}

TEST_CASE("looking into a cache that is missing finds nothing and makes nothing", "[cache]") {
    for (std::string const& path :
         {std::string("cache"), std::string("a/b/cache"), std::string("shared"), std::string("shared/")}) {
        INFO(path);
        TempDirectory const temp;
        Warnings const warnings;
        std::string const own = "uid-" + std::to_string(::geteuid());
        bool const shared = path.starts_with("shared");
        if (shared) std::filesystem::create_directory(temp.path("shared"));
        if (shared) std::filesystem::permissions(temp.path("shared"), std::filesystem::perms(01777));
        std::string const effective = shared ? temp.path("shared/" + own) : temp.path(path);

        auto const store = open_store(temp.path(path));
        CHECK(!store->load(sample_key(1)));
        CHECK(!store->load_any_compiler(sample_key(1).body));
        CHECK(!store->peek(sample_key(1)));
        CHECK(!store->peek_any_compiler(sample_key(1).body));
        CHECK(store->list().entries.empty());
        StoreState const missing = store->state();
        CHECK(missing.usable);
        CHECK(missing.writable);
        CHECK(!missing.exists);
        CHECK(missing.effective_path == effective);
        CHECK(missing.reason.find("cache directory " + effective + " does not exist") != std::string::npos);
        CHECK(std::filesystem::is_empty(shared ? temp.path("shared") : temp.path()));

        auto const writer = open_store(temp.path(path));
        REQUIRE(writer->store(sample_entry(1)).ok());
        for (auto const& each : {store, writer}) {  // the one that only looked finds it too
            CHECK(each->load(sample_key(1)));
            CHECK(each->state().exists);
            CHECK(each->state().effective_path == effective);
            CHECK(each->state().reason.empty() != shared);
        }
        CHECK(mode_of(effective) == 0700);
        CHECK(warnings.count() == 0);
    }
}

TEST_CASE("a relative directory is that of the time when the store was opened", "[cache]") {
    TempDirectory const temp;
    CHECK(in_child([&] {
              std::filesystem::current_path(temp.path());
              auto const store = open_store("new/cache");
              std::filesystem::current_path("/");
              return store->store(sample_entry(1)).ok() && store->origin().path == "new/cache" ? 0 : 1;
          }) == 0);
    CHECK(open_store(temp.path("new/cache"))->load(sample_key(1)));
}

TEST_CASE("threads share one store", "[cache][J24]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path("cache"));  // which the first of them makes
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
        threads.emplace_back([&, thread] {
            for (int round = 0; round < 20; ++round) {
                Entry const entry = sample_entry((thread + round) % 4, 3000);
                if (!store->store(entry).ok()) ++wrong;
                auto const loaded = store->load(entry.key);
                if (!loaded || !same(*loaded, entry)) ++wrong;
                (void)store->list();
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(store->list().entries.size() == 4);
    CHECK(store->quarantined() == 0);
}
