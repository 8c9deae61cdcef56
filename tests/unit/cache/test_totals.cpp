#include "cache/totals.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

struct Opened {
    TempDirectory temp;
    UniqueFd directory{::open(temp.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    std::string file = temp.path(kTotals);
};

std::string incremented(Result<std::string> const& before) {
    return std::to_string(before.ok() && !before->empty() ? std::stoi(*before) + 1 : 1);
}

}  // namespace

TEST_CASE("processes and threads of one directory lose no change of each other", "[cache][totals]") {
    Opened const at;
    CHECK(*read_totals(at.directory.get()) == "");
    constexpr int kProcesses = 8, kChanges = 20;
    std::vector<pid_t> children;
    for (int process = 0; process < kProcesses; ++process)
        children.push_back(start_child([&] {
            for (int change = 0; change < kChanges; ++change)
                if (!update_totals(at.directory.get(), incremented).ok()) return 1;
            return 0;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    CHECK(*read_totals(at.directory.get()) == std::to_string(kProcesses * kChanges));
    CHECK(mode_of(at.file) == 0600);
    CHECK(std::distance(std::filesystem::directory_iterator(at.temp.path()), std::filesystem::directory_iterator()) == 1);
}

TEST_CASE("who holds the lock of the totals holds up a change for a while, and none is made", "[cache][totals]") {
    Opened const at;
    REQUIRE(update_totals(at.directory.get(), incremented).ok());
    UniqueFd const other(::open(at.temp.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(::flock(other.get(), LOCK_EX) == 0);
    Status const busy = update_totals(at.directory.get(), incremented);
    CHECK(busy.code() == XQAJIT_UNAVAILABLE);
    CHECK(busy.message().find("lock") != std::string::npos);
    CHECK(*read_totals(at.directory.get()) == "1");  // looking needs no lock
    REQUIRE(::flock(other.get(), LOCK_UN) == 0);
    CHECK(update_totals(at.directory.get(), incremented).ok());
    CHECK(*read_totals(at.directory.get()) == "2");
}

TEST_CASE("totals that others could have written, or that are no file, are not read, and replaced", "[cache][totals]") {
    Opened const at;
    write_raw(at.temp.path("elsewhere"), "41");
    struct Row {
        char const* what;
        void (*plant)(Opened const&);
    };
    for (Row const& row :
         {Row{"a link", [](Opened const& o) { std::filesystem::create_symlink(o.temp.path("elsewhere"), o.file); }},
          Row{"a pipe", [](Opened const& o) { REQUIRE(::mkfifo(o.file.c_str(), 0600) == 0); }},
          Row{"open to all",
              [](Opened const& o) {
                  write_raw(o.file, "41");
                  REQUIRE(::chmod(o.file.c_str(), 0666) == 0);
              }},
          Row{"endless", [](Opened const& o) { write_raw(o.file, std::string((1u << 20) + 1, '1')); }}}) {
        INFO(row.what);
        std::filesystem::remove(at.file);
        row.plant(at);
        CHECK(read_totals(at.directory.get()).status().code() == XQAJIT_CACHE_CORRUPT);
        CHECK(update_totals(at.directory.get(), incremented).ok());
        CHECK(*read_totals(at.directory.get()) == "1");
        CHECK(read_raw(at.temp.path("elsewhere")) == "41");
    }
    // A folder there cannot be replaced: it stays, and what is left of the attempt goes.
    std::filesystem::remove(at.file);
    std::filesystem::create_directory(at.file);
    CHECK(read_totals(at.directory.get()).status().code() == XQAJIT_CACHE_CORRUPT);
    CHECK(update_totals(at.directory.get(), incremented).code() == XQAJIT_UNAVAILABLE);
    CHECK(std::distance(std::filesystem::directory_iterator(at.temp.path()), std::filesystem::directory_iterator()) == 2);
}

TEST_CASE("what is planted in the place of the totals' temporary file is not opened", "[cache][totals]") {
    Opened const at;
    std::string const temporary = at.temp.path(".tmp-totals"), elsewhere = at.temp.path("elsewhere");
    write_raw(elsewhere, "41");
    using Plant = std::function<void()>;
    int changes = 0;
    for (Plant const& plant :
         {Plant([&] { std::filesystem::create_symlink(elsewhere, temporary); }),
          Plant([&] { std::filesystem::create_hard_link(elsewhere, temporary); }),
          Plant([&] { REQUIRE(::mkfifo(temporary.c_str(), 0600) == 0); }), Plant([&] { write_raw(temporary, "half"); })}) {
        plant();
        CHECK(update_totals(at.directory.get(), incremented).ok());
        CHECK(*read_totals(at.directory.get()) == std::to_string(++changes));
        CHECK(read_raw(elsewhere) == "41");
    }
    std::filesystem::create_directory(temporary);
    CHECK(update_totals(at.directory.get(), incremented).code() == XQAJIT_UNAVAILABLE);
    CHECK(*read_totals(at.directory.get()) == std::to_string(changes));
}

TEST_CASE("a directory that is missing, read-only or none has no totals to add to, and nothing is made", "[cache][totals]") {
    TempDirectory const temp;
    auto const missing = open_store(temp.path("cache"));
    CHECK(*missing->totals() == "");
    CHECK(missing->update_totals(incremented).ok());
    CHECK_FALSE(std::filesystem::exists(temp.path("cache")));
    auto const none = DiskStore::disabled("no home");
    CHECK(none->totals().status().code() == XQAJIT_UNAVAILABLE);
    CHECK(none->update_totals(incremented).message() == "no home");
    std::filesystem::create_directory(temp.path("layer"));
    std::filesystem::permissions(temp.path("layer"), std::filesystem::perms(0755));
    CHECK(as_ordinary_user([&] {
              if (::geteuid() == 0 || ::access(temp.path("layer").c_str(), W_OK) == 0) return 0;  // the user's own
              return open_store(temp.path("layer"))->update_totals(incremented).code() == XQAJIT_UNAVAILABLE ? 0 : 1;
          }) == 0);
}
