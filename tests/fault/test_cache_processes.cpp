// Processes that share a cache directory, and processes that die in it.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

bool hits(DiskStore& store, Entry const& entry) {
    auto const loaded = store.load(entry.key);
    return loaded && same(*loaded, entry);
}

}  // namespace

TEST_CASE("16 processes with 16 keys share a fresh cache", "[cache][J05]") {
    for (int round = 0; round < 100; ++round) {
        TempDirectory const temp;
        std::vector<pid_t> children;
        for (int number = 0; number < 16; ++number)
            children.push_back(start_child([&] {
                Warnings const warnings;
                Entry const entry = sample_entry(number, 5000);
                auto const store = open_store(temp.path("a/b/cache"));
                if (!store->state().writable) return 1;
                if (store->load(entry.key)) return 2;
                if (!store->store(entry).ok()) return 3;
                if (!hits(*store, entry)) return 4;
                return warnings.count() == 0 ? 0 : 5;
            }));
        for (pid_t const child : children) CHECK(wait_child(child) == 0);
        auto const store = open_store(temp.path("a/b/cache"));
        for (int number = 0; number < 16; ++number) CHECK(hits(*store, sample_entry(number, 5000)));
        REQUIRE(store->list().entries.size() == 16);
    }
}

TEST_CASE("an entry that processes write at once is whole at every instant", "[cache]") {
    TempDirectory const temp;
    Entry const entry = sample_entry(1, 100000);
    REQUIRE(open_store(temp.path())->store(entry).ok());
    std::vector<pid_t> writers;
    for (int writer = 0; writer < 4; ++writer)
        writers.push_back(start_child([&] {
            auto const store = open_store(temp.path());
            for (int round = 0; round < 100; ++round)
                if (!store->store(entry).ok()) return 1;
            return 0;
        }));
    pid_t const reader = start_child([&] {
        auto const store = open_store(temp.path());
        for (int round = 0; round < 500; ++round)
            if (!hits(*store, entry)) return 1;
        return store->quarantined() == 0 ? 0 : 2;
    });
    CHECK(wait_child(reader) == 0);
    for (pid_t const writer : writers) CHECK(wait_child(writer) == 0);
    CHECK(hits(*open_store(temp.path()), entry));
}

TEST_CASE("processes that meet one bad entry heal it together", "[cache][J07]") {
    for (int round = 0; round < 20; ++round) {
        TempDirectory const temp;
        Warnings const warnings;
        Entry const entry = sample_entry(1, 20000);
        auto const store = open_store(temp.path());
        REQUIRE(store->store(entry).ok());
        write_raw(file_of(*store, entry.key), "damaged");
        std::vector<pid_t> children;
        for (int child = 0; child < 8; ++child)
            children.push_back(start_child([&] {
                auto const mine = open_store(temp.path());
                auto const loaded = mine->load(entry.key);
                if (loaded) return same(*loaded, entry) ? 0 : 1;
                return mine->store(entry).ok() ? 0 : 2;
            }));
        for (pid_t const child : children) CHECK(wait_child(child) == 0);
        if (!store->load(entry.key)) CHECK(store->store(entry).ok());
        CHECK(hits(*store, entry));
    }
}

TEST_CASE("a writer killed at any moment leaves no broken entry", "[cache][J07]") {
    TempDirectory const temp;
    Warnings const warnings;
    std::mt19937 random(1);
    auto const store = open_store(temp.path());
    for (int round = 0; round < 60; ++round) {
        pid_t const writer = start_child([&] {
            auto const mine = open_store(temp.path());
            for (int number = 0;; ++number) (void)mine->store(sample_entry(number % 4, 2u << 20));
            return 0;
        });
        ::usleep(random() % 20000);
        ::kill(writer, SIGKILL);
        REQUIRE(wait_child(writer) == 1000 + SIGKILL);
        for (ListedEntry const& listed : store->list().entries) CHECK(listed.status.ok());
    }
    for (int number = 0; number < 4; ++number) {
        Entry const entry = sample_entry(number, 2u << 20);
        CHECK(store->store(entry).ok());
        CHECK(hits(*store, entry));
    }
    CHECK(store->list().entries.size() == 4);
    CHECK(store->quarantined() == 0);
    CHECK(warnings.count() == 0);
}

TEST_CASE("a store removes what killed writers left in its folder, and nothing else", "[cache]") {
    Entry const entry = sample_entry(1);
    Entry const neighbour = sample_entry(2);
    struct Left {
        char const* name;
        int age;  // seconds
        bool kept;
    };
    for (Left const& left : {Left{".tmp-1-0", 3700, false}, Left{".tmp-999999999-7", 1000000, false}, Left{".tmp-", 4000, false},
                             Left{".tmp-1-1", 0, true}, Left{".tmp-1-2", 3000, true}, Left{".tmp-1-3", -100000, true},
                             Left{"notes", 1000000, true}, Left{"x.tmp-1-4", 1000000, true}, Left{"old.xqa", 1000000, true}}) {
        INFO(left.name << ", " << left.age << " seconds old");
        TempDirectory const temp;
        Warnings const warnings;
        auto const store = open_store(temp.path());
        REQUIRE(store->store(entry).ok());
        REQUIRE(store->store(neighbour).ok());
        std::vector<std::string> files;
        for (Entry const& each : {entry, neighbour})
            files.push_back(std::filesystem::path(file_of(*store, each.key)).parent_path() / left.name);
        bool const is_temporary = std::string(left.name).starts_with(".tmp-");
        for (std::string const& file : files) {
            write_raw(file, "half");
            timespec const time{::time(nullptr) - left.age, 0};
            timespec const times[2] = {time, time};
            REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
        }
        CHECK(store->list().temporaries.size() == (is_temporary ? 2u : 0u));
        CHECK(store->load(entry.key));
        CHECK(std::filesystem::exists(files[0]));  // loading tidies nothing
        CHECK(store->store(entry).ok());
        CHECK(std::filesystem::exists(files[0]) == left.kept);
        CHECK(std::filesystem::exists(files[1]));  // another folder's
        CHECK(warnings.count() == 0);
    }
}

TEST_CASE("only regular files of one's own are taken for a killed writer's", "[cache]") {
    for (char const* kind : {"folder", "link", "another user's"}) {
        if (kind == std::string("another user's") && ::geteuid() != 0) continue;
        INFO(kind);
        TempDirectory const temp;
        auto const store = open_store(temp.path());
        Entry const entry = sample_entry(1);
        REQUIRE(store->store(entry).ok());
        std::string const file = std::filesystem::path(file_of(*store, entry.key)).parent_path() / ".tmp-1-0";
        if (kind == std::string("folder")) std::filesystem::create_directory(file);
        if (kind == std::string("link")) std::filesystem::create_symlink("nowhere", file);
        if (kind == std::string("another user's")) write_raw(file, "half");
        if (kind == std::string("another user's")) REQUIRE(::chown(file.c_str(), 12345, 12345) == 0);
        timespec const times[2] = {};
        REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
        CHECK(store->store(entry).ok());
        CHECK(std::filesystem::symlink_status(file).type() != std::filesystem::file_type::not_found);
    }
}
