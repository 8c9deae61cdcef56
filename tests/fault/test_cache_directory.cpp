// Directories that cannot be used, or not fully, or not safely.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace fs = std::filesystem;

namespace {

// Steps of a child: the number of the first false one is its exit code, so that a failure names itself.
int first_false(std::vector<bool> const& steps) {
    for (std::size_t i = 0; i < steps.size(); ++i)
        if (!steps[i]) return static_cast<int>(i) + 1;
    return 0;
}

bool hits(DiskStore& store, Entry const& entry) {
    auto const loaded = store.load(entry.key);
    return loaded && same(*loaded, entry);
}

bool names(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// Three failed stores, one warning.
bool refuses_to_store(DiskStore& store, std::string const& reason) {
    Warnings const warnings;
    for (int number = 100; number < 103; ++number) {
        Status const status = store.store(sample_entry(number));
        if (status.code() != XQAJIT_UNAVAILABLE || !names(status.message(), reason)) return false;
    }
    return warnings.count() == 1 && names(warnings.texts()[0], reason);
}

void give_tree(std::string const& path) {
    give_to_ordinary_user(path);
    for (auto const& item : fs::recursive_directory_iterator(path)) give_to_ordinary_user(item.path());
}

std::size_t files_below(std::string const& path) {
    std::size_t count = 0;
    for (auto const& item : fs::recursive_directory_iterator(path))
        if (!item.is_directory()) ++count;
    return count;
}

std::string uid_folder() { return "uid-" + std::to_string(::geteuid()); }

void root_only() {
    if (::geteuid() != 0) skip_test("only root can give files to other users");
}

}  // namespace

TEST_CASE("a read-only cache serves its entries, and a store is one warning", "[cache]") {
    TempDirectory const temp;
    REQUIRE(open_store(temp.path("cache"))->store(sample_entry(1)).ok());
    give_tree(temp.path("cache"));
    for (auto const& item : fs::recursive_directory_iterator(temp.path("cache"))) fs::permissions(item.path(), fs::perms(0500));
    fs::permissions(temp.path("cache"), fs::perms(0500));
    CHECK(as_ordinary_user([&] {
              auto const store = open_store(temp.path("cache"));
              return first_false({store->state().usable, !store->state().writable, names(store->state().reason, "EACCES"),
                                  hits(*store, sample_entry(1)), !store->load(sample_key(2)), refuses_to_store(*store, "EACCES")});
          }) == 0);
    CHECK(files_below(temp.path("cache")) == 1);
}

TEST_CASE("a cache that may not be read misses, and says why", "[cache]") {
    TempDirectory const temp;
    auto const store_of_maker = open_store(temp.path("cache"));
    REQUIRE(store_of_maker->store(sample_entry(1)).ok());
    std::string const file = file_of(*store_of_maker, sample_key(1));
    give_tree(temp.path("cache"));
    SECTION("the directory") {
        fs::permissions(temp.path("cache"), fs::perms(0));
        CHECK(as_ordinary_user([&] {
                  auto const store = open_store(temp.path("cache"));
                  return first_false({!store->state().usable, names(store->state().reason, "EACCES"), !store->load(sample_key(1)),
                                      store->list().entries.empty(), refuses_to_store(*store, "EACCES")});
              }) == 0);
    }
    SECTION("the entry: left alone, one warning") {
        fs::permissions(file, fs::perms(0));
        CHECK(as_ordinary_user([&] {
                  Warnings const warnings;
                  auto const store = open_store(temp.path("cache"));
                  for (int round = 0; round < 3; ++round)
                      if (store->load(sample_key(1))) return 50;
                  return first_false({warnings.count() == 1, store->quarantined() == 0, fs::exists(file),
                                      store->list().entries.at(0).status.code() == XQAJIT_UNAVAILABLE,
                                      store->store(sample_entry(1)).ok(), hits(*store, sample_entry(1))});
              }) == 0);
    }
}

TEST_CASE("a listing names what it cannot read, and has the rest", "[cache]") {
    for (char const* part : {"entry", "body", "prefix", "quarantine"}) {
        INFO(part);
        TempDirectory const temp;
        auto const maker = open_store(temp.path("cache"));
        for (int const number : {1, 2}) REQUIRE(maker->store(sample_entry(number)).ok());
        fs::create_directory(temp.path("cache/quarantine"));
        fs::path closed = file_of(*maker, sample_key(1));
        if (part == std::string("body")) closed = closed.parent_path();
        if (part == std::string("prefix")) closed = closed.parent_path().parent_path();
        if (part == std::string("quarantine")) closed = temp.path("cache/quarantine");
        give_tree(temp.path("cache"));
        fs::permissions(closed, fs::perms(0));
        CHECK(as_ordinary_user([&] {
                  Listing const listing = open_store(temp.path("cache"))->list();
                  std::vector<std::pair<std::string, Status>> failed;
                  for (ListedEntry const& entry : listing.entries)
                      if (!entry.status.ok()) failed.emplace_back(entry.path, entry.status);
                  for (ListedFolder const& folder : listing.unlisted) failed.emplace_back(folder.path, folder.status);
                  if (failed.size() != 1) return 50;
                  bool const keeps_first = part == std::string("entry") || part == std::string("quarantine");
                  return first_false({failed[0].first == closed.string(), failed[0].second.code() == XQAJIT_UNAVAILABLE,
                                      names(failed[0].second.message(), "EACCES"),
                                      listing.entries.size() == (keeps_first ? 2u : 1u)});
              }) == 0);
    }
}

TEST_CASE("a directory that cannot be made, or is a file, makes a store that misses", "[cache]") {
    TempDirectory const temp;
    write_raw(temp.path("file"), "x");
    fs::create_directory(temp.path("closed"));
    fs::permissions(temp.path("closed"), fs::perms(0555));
    struct Case {
        std::string path;
        char const* reason;
    };
    for (Case const& c : {Case{"file", "ENOTDIR"}, Case{"file/below/it", "ENOTDIR"}, Case{"closed/cache", "EACCES"},
                          Case{"closed/a/b", "EACCES"}}) {
        INFO(c.path);
        CHECK(as_ordinary_user([&] {
                  auto const store = open_store(temp.path(c.path));
                  return first_false({!store->state().writable, names(store->state().reason, c.reason),
                                      names(store->state().reason, temp.path(c.path)), !store->load(sample_key(1)),
                                      refuses_to_store(*store, c.reason), !store->make_directory().ok()});
              }) == 0);
    }
    CHECK(read_raw(temp.path("file")) == "x");
}

TEST_CASE("a directory that vanishes makes a store that misses", "[cache]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path("cache"));
    REQUIRE(store->store(sample_entry(1)).ok());
    fs::remove_all(temp.path("cache"));
    CHECK(!store->load(sample_key(1)));
    CHECK(store->list().entries.empty());
    CHECK(refuses_to_store(*store, "ENOENT"));
}

TEST_CASE("a write that the system cuts short leaves nothing behind and is one warning", "[cache]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    REQUIRE(store->store(sample_entry(1)).ok());
    CHECK(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              rlimit const limit{500, 500};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 50;
              return first_false({refuses_to_store(*store, "EFBIG"), hits(*store, sample_entry(1))});
          }) == 0);
    CHECK(files_below(temp.path()) == 1);
    CHECK(store->store(sample_entry(100)).ok());
}

TEST_CASE("a full disk is one warning, and what is there still hits", "[cache]") {
    TempDirectory const temp;
    constexpr int kNotPermitted = 77;
    int const code = in_child([&] {
        // A mount of this child's own, gone with it.
        if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("none", temp.path().c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0)
            return kNotPermitted;
        auto const store = open_store(temp.path());
        bool const first = store->store(sample_entry(1)).ok();
        Warnings const warnings;
        int failed = 0;
        for (int number = 2; number < 6; ++number) {
            Status const status = store->store(sample_entry(number, 100000));
            if (status.code() == XQAJIT_UNAVAILABLE && names(status.message(), "ENOSPC")) ++failed;
        }
        return first_false({first, failed == 4, warnings.count() == 1, hits(*store, sample_entry(1)), files_below(temp.path()) == 1,
                            store->store(sample_entry(7)).ok(), hits(*store, sample_entry(7))});
    });
    if (code == kNotPermitted) skip_test("may not mount a small disk");
    CHECK(code == 0);
}

TEST_CASE("what another user owns is refused with the reason", "[cache]") {
    root_only();
    TempDirectory const temp;
    SECTION("the named directory") {
        REQUIRE(open_store(temp.path("cache"))->store(sample_entry(1)).ok());
        REQUIRE(::chown(temp.path("cache").c_str(), 12345, 12345) == 0);
        for (unsigned const mode : {0700u, 0755u}) {
            fs::permissions(temp.path("cache"), fs::perms(mode));
            auto const store = open_store(temp.path("cache"));
            CHECK(!store->state().usable);
            CHECK(store->state().reason == "cache directory " + temp.path("cache") + " is owned by uid 12345: accepted is 0");
            CHECK(!store->load(sample_key(1)));
            CHECK(refuses_to_store(*store, "uid 12345"));
        }
    }
    SECTION("a link in its place") {
        fs::create_directory(temp.path("real"));
        fs::create_directory_symlink(temp.path("real"), temp.path("link"));
        REQUIRE(::lchown(temp.path("link").c_str(), 12345, 12345) == 0);
        CHECK(names(open_store(temp.path("link"))->state().reason, "is a link that is owned by uid 12345"));
    }
    SECTION("an entry") {
        auto const store = open_store(temp.path());
        REQUIRE(store->store(sample_entry(1)).ok());
        REQUIRE(::chown(file_of(*store, sample_key(1)).c_str(), 12345, 12345) == 0);
        Warnings const warnings;
        CHECK(store->list().entries.at(0).status.code() == XQAJIT_CACHE_CORRUPT);
        CHECK(!store->load(sample_key(1)));
        CHECK(store->quarantined() == 1);
        REQUIRE(warnings.count() == 1);
        CHECK(names(warnings.texts()[0], "is owned by uid 12345"));
        CHECK(store->store(sample_entry(1)).ok());
        CHECK(hits(*store, sample_entry(1)));
    }
    SECTION("a folder of entries") {
        Warnings const warnings;
        auto const store = open_store(temp.path());
        REQUIRE(store->store(sample_entry(1)).ok());
        REQUIRE(::chown(fs::path(file_of(*store, sample_key(1))).parent_path().c_str(), 12345, 12345) == 0);
        CHECK(!store->load(sample_key(1)));
        CHECK(names(store->store(sample_entry(1)).message(), "is owned by uid 12345"));
    }
}

TEST_CASE("a shared directory gives each user a subdirectory of their own", "[cache]") {
    for (unsigned const mode : {0777u, 01777u, 0775u, 0770u, 02777u}) {
        TempDirectory const temp;
        fs::create_directory(temp.path("shared"));
        REQUIRE(::chmod(temp.path("shared").c_str(), mode) == 0);
        auto const store = open_store(temp.path("shared"));
        CHECK(store->state().usable);
        CHECK(store->state().writable);
        CHECK(store->state().effective_path == temp.path("shared/" + uid_folder()));
        CHECK(names(store->state().reason, "others can write"));
        CHECK(store->origin().path == temp.path("shared"));
        CHECK(store->store(sample_entry(1)).ok());
        CHECK((mode_of(temp.path("shared/" + uid_folder())) & 0777) == 0700);
        CHECK(hits(*open_store(temp.path("shared")), sample_entry(1)));
        if (::geteuid() != 0 || (mode & 02) == 0) continue;
        CHECK(as_ordinary_user([&] {
                  auto const other = open_store(temp.path("shared"));
                  return first_false({other->state().effective_path == temp.path("shared/" + uid_folder()),
                                      !other->load(sample_key(1)), other->store(sample_entry(2)).ok(),
                                      hits(*other, sample_entry(2))});
              }) == 0);
        CHECK(!store->load(sample_key(2)));
    }
}

TEST_CASE("a planted subdirectory of a shared directory is refused", "[cache]") {
    TempDirectory const temp;
    fs::create_directory(temp.path("shared"));
    REQUIRE(::chmod(temp.path("shared").c_str(), 01777) == 0);
    std::string const planted = temp.path("shared/" + uid_folder());
    std::string reason;
    SECTION("a link to a directory of one's own") {
        fs::create_directory(temp.path("victim"));
        fs::create_directory_symlink(temp.path("victim"), planted);
        reason = "ENOTDIR";
    }
    SECTION("a dangling link") {
        fs::create_symlink("nowhere", planted);
        reason = "cache folder";
    }
    SECTION("a file") {
        write_raw(planted, "x");
        reason = "ENOTDIR";
    }
    SECTION("one that others can write") {
        fs::create_directory(planted);
        REQUIRE(::chmod(planted.c_str(), 0777) == 0);
        reason = "has mode 0777";
    }
    SECTION("another user's") {
        root_only();
        fs::create_directory(planted);
        REQUIRE(::chown(planted.c_str(), 12345, 12345) == 0);
        reason = "is owned by uid 12345";
    }
    auto const store = open_store(temp.path("shared"));
    INFO(store->state().reason);
    CHECK(!store->state().usable);
    CHECK(names(store->state().reason, reason));
    CHECK(!store->load(sample_key(1)));
    CHECK(refuses_to_store(*store, reason));
    if (fs::exists(temp.path("victim"))) CHECK(fs::is_empty(temp.path("victim")));
}

TEST_CASE("a cache of root's that others cannot write is read and never written", "[cache][J12]") {
    root_only();
    TempDirectory const temp;
    REQUIRE(open_store(temp.path("cache"))->store(sample_entry(1)).ok());
    fs::permissions(temp.path("cache"), fs::perms(0755));
    for (auto const& item : fs::recursive_directory_iterator(temp.path("cache"))) fs::permissions(item.path(), fs::perms(0755));
    CHECK(as_ordinary_user([&] {
              auto const store = open_store(temp.path("cache"));
              return first_false({store->state().usable, !store->state().writable,
                                  names(store->state().reason, "is owned by uid 0"), hits(*store, sample_entry(1)),
                                  refuses_to_store(*store, "is owned by uid 0")});
          }) == 0);
}

TEST_CASE("the named directory wins over every other, whoever runs, and nothing is written elsewhere", "[cache][J12]") {
    TempDirectory const temp;
    for (char const* name : {"system", "mine", "home"}) fs::create_directory(temp.path(name));
    give_to_ordinary_user(temp.path("mine"));
    fs::permissions(temp.path("system"), fs::perms(0555));
    for (char const* home : {"", "/", "unset", "/nonexistent"}) {
        INFO("HOME " << home);
        CHECK(as_ordinary_user([&] {
                  ::unsetenv("XDG_CACHE_HOME");
                  if (home == std::string("unset"))
                      ::unsetenv("HOME");
                  else
                      ::setenv("HOME", home, 1);
                  Result<StoreOrigin> const origin = default_store(temp.path("mine"));
                  if (!origin.ok()) return 50;
                  auto const store = DiskStore::open(*origin);
                  return first_false({store->origin().origin == "XQAJIT_CACHE_DIR",
                                      store->state().effective_path == temp.path("mine"), store->state().writable,
                                      store->store(sample_entry(1)).ok(), hits(*store, sample_entry(1))});
              }) == 0);
    }
    CHECK(files_below(temp.path("mine")) == 1);
    CHECK(files_below(temp.path()) == 1);
}
