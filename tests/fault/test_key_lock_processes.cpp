// Processes that want one key's lock, processes that die with it, and what may stand in its place.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "base/file.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;
using State = KeyLock::State;
using std::chrono::milliseconds;

namespace fs = std::filesystem;

namespace {

LockWait const kLong{milliseconds(60000), nullptr};

std::string lock_file(TempDirectory const& temp, CacheKey const& key) {
    return temp.path("locks/" + key.body.hex() + "-" + key.compiler.hex() + ".lock");
}

// Another process that holds the key once the constructor returns, until it is killed.
class Holder {
public:
    Holder(TempDirectory const& temp, CacheKey const& key, std::function<void()> const& meanwhile = {}) {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        child_ = start_child([&] {
            KeyLock const lock = open_store(temp.path())->lock(key, {});
            if (lock.state() != State::kHeld) return 1;
            if (meanwhile) meanwhile();
            if (::write(ends[1], "x", 1) != 1) return 2;
            while (true) ::pause();
        });
        ::close(ends[1]);
        char ready = 0;
        REQUIRE(::read(ends[0], &ready, 1) == 1);
        ::close(ends[0]);
    }
    ~Holder() { kill(); }
    Holder(Holder const&) = delete;
    Holder& operator=(Holder const&) = delete;
    void kill() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        wait_child(std::exchange(child_, 0));
    }

private:
    pid_t child_ = 0;
};

}  // namespace

TEST_CASE("of 16 processes one at a time holds a key, whoever removes the file", "[cache][J01]") {
    TempDirectory const temp;
    std::vector<pid_t> children;
    for (int child = 0; child < 16; ++child)
        children.push_back(start_child([&] {
            auto const store = open_store(temp.path());
            std::string const inside = temp.path("inside");
            for (int round = 0; round < 50; ++round) {
                KeyLock const lock = store->lock(sample_key(1), kLong);
                if (lock.state() != State::kHeld) return 1;
                UniqueFd const mark(::open(inside.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600));
                if (!mark.valid()) return 2;
                if (::unlink(inside.c_str()) != 0) return 3;
            }
            return 0;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    CHECK(fs::is_empty(temp.path("locks")));
}

TEST_CASE("a killed holder's lock is free at once", "[cache][J22]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    Holder holder(temp, sample_key(1));
    CHECK(store->lock(sample_key(1), {}).state() == State::kBusy);
    holder.kill();
    CHECK(fs::exists(lock_file(temp, sample_key(1))));
    CHECK(store->lock(sample_key(1), {}).state() == State::kHeld);
    CHECK_FALSE(fs::exists(lock_file(temp, sample_key(1))));
    CHECK(warnings.count() == 0);
}

TEST_CASE("a program that a holder has started does not keep the lock", "[cache][J22]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    Holder holder(temp, sample_key(1), [&] {
        std::array<char const*, 3> const argv{"/bin/sleep", "60", nullptr};
        pid_t program = 0;
        if (::posix_spawn(&program, argv[0], nullptr, nullptr, const_cast<char**>(argv.data()), environ) != 0) ::_exit(3);
        if (::write(ends[1], &program, sizeof program) != sizeof program) ::_exit(4);
    });
    pid_t program = 0;
    REQUIRE(::read(ends[0], &program, sizeof program) == sizeof program);
    holder.kill();
    // The spawn may return a moment before the program has closed what it does not inherit.
    CHECK(store->lock(sample_key(1), {milliseconds(20000), nullptr}).state() == State::kHeld);
    CHECK(::kill(program, 0) == 0);
    ::kill(program, SIGKILL);
    for (int const end : ends) ::close(end);
}

TEST_CASE("a child that was forked meanwhile keeps nothing past the release, and gives nothing away by its end", "[cache][J22]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    pid_t lasting = 0;
    {
        KeyLock lock = store->lock(sample_key(1), {});
        REQUIRE(lock.state() == State::kHeld);
        CHECK(in_child([&] {
                  KeyLock const copy = std::move(lock);
                  return 0;
              }) == 0);
        CHECK(store->lock(sample_key(1), {}).state() == State::kBusy);
        lasting = start_child([] {
            while (true) ::pause();
            return 0;
        });
    }
    CHECK(store->lock(sample_key(1), {}).state() == State::kHeld);
    ::kill(lasting, SIGKILL);
    wait_child(lasting);
}

TEST_CASE("a lock file that a dead process left holds up nobody and is no part of the cache", "[cache][J22]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    REQUIRE(store->store(sample_entry(1)).ok());
    fs::create_directory(temp.path("locks"));
    fs::permissions(temp.path("locks"), fs::perms(0700));
    for (std::string const text : {"", "4711\n"}) {
        for (int const number : {1, 2}) {
            std::string const file = lock_file(temp, sample_key(number));
            write_raw(file, text);
            fs::permissions(file, fs::perms(0600));
            timespec const times[2] = {};
            REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
        }
        Listing const listing = store->list();
        CHECK(listing.entries.size() == 1);
        CHECK(listing.unlisted.empty());
        CHECK(listing.temporaries.empty());
        for (int const number : {1, 2}) {
            KeyLock const lock = store->lock(sample_key(number), kLong);
            CHECK(lock.state() == State::kHeld);
            CHECK_FALSE(lock.waited());
        }
        CHECK(fs::is_empty(temp.path("locks")));
    }
    CHECK(warnings.count() == 0);
}

TEST_CASE("what stands in a lock's place is not followed or used, costs one warning, and stops no store", "[cache][J22]") {
    for (char const* const kind :
         {"file for folder", "link for folder", "folder of others", "link", "FIFO", "folder", "file of others"}) {
        INFO(kind);
        TempDirectory const temp;
        Warnings const warnings;
        std::string const what = kind;
        bool const is_the_folder = what.ends_with("for folder") || what == "folder of others";
        std::string const folder = temp.path("locks"), file = lock_file(temp, sample_key(1));
        if (what == "file for folder") write_raw(folder, "");
        if (what == "link for folder") fs::create_directory_symlink(temp.path("elsewhere"), folder);
        if (!fs::exists(fs::symlink_status(folder))) {
            fs::create_directory(folder);
            fs::permissions(folder, fs::perms(what == "folder of others" ? 0777 : 0700));
        }
        if (what == "link") fs::create_symlink(temp.path("elsewhere"), file);
        if (what == "FIFO") REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
        if (what == "folder") fs::create_directory(file);
        if (what == "file of others") write_raw(file, "");
        if (what == "file of others") fs::permissions(file, fs::perms(0666));

        auto const store = open_store(temp.path());
        for (int round = 0; round < 3; ++round) {
            KeyLock const lock = store->lock(sample_key(1), kLong);
            CHECK(lock.state() == State::kRefused);
            CHECK_FALSE(lock.reason().message().empty());
        }
        CHECK(warnings.count() == 1);
        CHECK(store->list().unlisted.size() == (is_the_folder ? 1u : 0u));
        CHECK_FALSE(fs::exists(temp.path("elsewhere")));
        CHECK(store->store(sample_entry(1)).ok());
        CHECK(store->load(sample_key(1)));
        CHECK(warnings.count() == 1);
    }
}

TEST_CASE("where nothing can be written there is no lock and no word of it", "[cache][J22]") {
    TempDirectory const temp;
    fs::create_directory(temp.path("cache"));
    give_to_ordinary_user(temp.path("cache"));
    auto const silent = [&](std::string const& path) {
        return as_ordinary_user([&] {
            Warnings const warnings;
            auto const store = open_store(path);
            return store->lock(sample_key(1), kLong).state() == State::kUnmade && warnings.count() == 0 ? 0 : 1;
        });
    };
    CHECK(silent(temp.path("missing/cache")) == 0);
    fs::permissions(temp.path("cache"), fs::perms(0555));
    CHECK(silent(temp.path("cache")) == 0);
    CHECK(fs::is_empty(temp.path("cache")));
    Warnings const warnings;
    CHECK(DiskStore::disabled("none is named")->lock(sample_key(1), kLong).state() == State::kUnmade);
    CHECK(warnings.count() == 0);
}

TEST_CASE("a lock file that cannot be removed serves again", "[cache][J03]") {
    TempDirectory const temp;
    fs::create_directory(temp.path("cache"));
    give_to_ordinary_user(temp.path("cache"));
    CHECK(as_ordinary_user([&] {
              Warnings const warnings;
              auto const store = open_store(temp.path("cache"));
              {
                  KeyLock const lock = store->lock(sample_key(1), {});
                  if (lock.state() != State::kHeld) return 1;
                  fs::permissions(temp.path("cache/locks"), fs::perms(0500));
              }
              if (fs::is_empty(temp.path("cache/locks"))) return 2;
              if (store->lock(sample_key(1), {}).state() != State::kHeld) return 3;
              if (store->lock(sample_key(2), {}).state() != State::kUnmade) return 4;
              return warnings.count() == 0 ? 0 : 5;
          }) == 0);
}
