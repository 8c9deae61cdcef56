#include "cache/directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

std::string distrust_of(uid_t owner, mode_t mode) {
    struct stat file {};
    file.st_uid = owner;
    file.st_mode = mode;
    return distrust(file);
}

UniqueFd open_directory(std::string const& path) { return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY)); }

}  // namespace

TEST_CASE("only what the user or root owns and nobody else can write is trusted", "[cache]") {
    uid_t const self = ::geteuid();
    for (mode_t const mode : {0700, 0600, 0755, 0644, 0444, 01755})
        for (uid_t const owner : {self, uid_t{0}}) CHECK(distrust_of(owner, mode).empty());
    for (mode_t const mode : {0777, 0770, 0720, 0702, 01777, 02775}) CHECK(distrust_of(self, mode).find("has mode") == 0);
    CHECK(distrust_of(self, 01777) == "has mode 1777: nobody but its owner may write it");
    CHECK(distrust_of(self + 1, 0700).find("is owned by uid " + std::to_string(self + 1) + ": accepted") == 0);
}

TEST_CASE("a folder is made 0700, opened again, and missed where it is not to be made", "[cache]") {
    TempDirectory const temp;
    UniqueFd const top = open_directory(temp.path());
    Result<UniqueFd> folder = open_folder_at(top.get(), "a", false);
    CHECK((folder.ok() && !folder->valid()));
    folder = open_folder_at(top.get(), "a", true);
    CHECK((folder.ok() && folder->valid()));
    CHECK(mode_of(temp.path("a")) == 0700);
    folder = open_folder_at(top.get(), "a", true);
    CHECK((folder.ok() && folder->valid()));
}

TEST_CASE("a link, a file or a shared folder is not a folder of the cache", "[cache]") {
    TempDirectory const temp;
    UniqueFd const top = open_directory(temp.path());
    std::filesystem::create_directory(temp.path("real"));
    std::filesystem::create_directory_symlink(temp.path("real"), temp.path("link"));
    write_raw(temp.path("file"), "x");
    std::filesystem::create_directory(temp.path("shared"));
    REQUIRE(::chmod(temp.path("shared").c_str(), 0770) == 0);
    for (char const* name : {"link", "file", "shared"})
        for (bool const create : {false, true}) {
            Result<UniqueFd> const folder = open_folder_at(top.get(), name, create);
            INFO(name << ": " << folder.status().message());
            CHECK(folder.status().code() == XQAJIT_CACHE_CORRUPT);
            CHECK(folder.status().message().find(name) != std::string::npos);
        }
}

TEST_CASE("the named directory and its parents are made for their owner alone", "[cache]") {
    TempDirectory const temp;
    mode_t const before = ::umask(0);
    Result<OpenedRoot> const root = open_root(temp.path("a/b/c/"), true);
    ::umask(before);
    REQUIRE(root.ok());
    CHECK(root->path == temp.path("a/b/c"));
    CHECK(root->writable);
    CHECK(root->reason.empty());
    for (char const* made : {"a", "a/b", "a/b/c"}) CHECK(mode_of(temp.path(made)) == 0700);
}

TEST_CASE("the named directory may be a link of one's own, and relative", "[cache]") {
    TempDirectory const temp;
    std::filesystem::create_directory(temp.path("real"));
    std::filesystem::create_directory_symlink("real", temp.path("link"));
    for (char const* name : {"link", "link/", "real", "real//"}) {
        Result<OpenedRoot> const root = open_root(temp.path(name), true);
        INFO(root.status().message());
        CHECK((root.ok() && root->writable));
    }
    int const code = in_child([&] {
        std::filesystem::current_path(temp.path());
        Result<OpenedRoot> const root = open_root("new/cache", true);
        return root.ok() && root->path == temp.path("new/cache") ? 0 : 1;
    });
    CHECK(code == 0);
    CHECK(mode_of(temp.path("new/cache")) == 0700);
}

TEST_CASE("what is no directory is refused with its name and the reason", "[cache]") {
    TempDirectory const temp;
    write_raw(temp.path("file"), "x");
    std::filesystem::create_symlink("nowhere/at/all", temp.path("dangling"));
    std::filesystem::create_symlink("loop", temp.path("loop"));
    struct Case {
        std::string path;
        char const* reason;
    };
    for (Case const& c :
         {Case{temp.path("file"), "ENOTDIR"}, Case{temp.path("file/below"), "ENOTDIR"}, Case{temp.path("dangling"), "ENOENT"},
          Case{temp.path("loop"), "ELOOP"}, Case{temp.path(std::string(300, 'n')), "ENAMETOOLONG"}}) {
        Result<OpenedRoot> const root = open_root(c.path, true);
        INFO(c.path << ": " << root.status().message());
        CHECK(root.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(root.status().message().find(c.path) != std::string::npos);
        CHECK(root.status().message().find(c.reason) != std::string::npos);
    }
    CHECK(open_root("", true).status().code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("the names in a folder come sorted and complete, every time", "[cache]") {
    TempDirectory const temp;
    for (char const* name : {"b", "a", ".hidden", "c"}) write_raw(temp.path(name), "");
    UniqueFd const top = open_directory(temp.path());
    std::vector<std::string> const expected{".hidden", "a", "b", "c"};
    CHECK(*names_in(top.get()) == expected);
    CHECK(*names_in(top.get()) == expected);
    CHECK(names_in(-1).status().code() == XQAJIT_UNAVAILABLE);
    std::filesystem::create_directory(temp.path("gone"));
    UniqueFd const gone = open_directory(temp.path("gone"));
    std::filesystem::remove(temp.path("gone"));
    CHECK(names_in(gone.get())->empty());
}

TEST_CASE("directories opened while standard streams are closed do not take their numbers", "[cache]") {
    TempDirectory const temp;
    for (std::vector<int> const& closed : {std::vector<int>{0}, {1}, {2}, {0, 1, 2}}) {
        INFO(closed.front() << ", " << closed.size() << " closed");
        CHECK(in_child([&] {
                  for (int const stream : closed) ::close(stream);
                  auto const store = open_store(temp.path("cache"));
                  if (!store->store(sample_entry(1)).ok() || !store->load(sample_key(1))) return 1;
                  if (store->list().entries.size() != 1 || !store->load_any_compiler(sample_key(1).body)) return 2;
                  Result<OpenedRoot> const root = open_root(temp.path("cache"), true);
                  if (!root.ok() || root->directory.get() < 3) return 3;
                  Result<UniqueFd> const folder = open_folder_at(root->directory.get(), "folder", true);
                  if (!folder.ok() || folder->get() < 3) return 4;
                  if ((::fcntl(folder->get(), F_GETFD) & FD_CLOEXEC) == 0) return 5;
                  for (int const stream : closed)
                      if (::fcntl(stream, F_GETFD) != -1) return 6;
                  return 0;
              }) == 0);
    }
}

TEST_CASE("a file of the cache is regular, trusted and within its limit, or it is not read", "[cache]") {
    TempDirectory const temp;
    UniqueFd const top = open_directory(temp.path());
    using Outcome = CacheFile::Outcome;
    auto const outcome = [&](char const* name) { return read_cache_file(top.get(), name, 10).outcome; };
    write_raw(temp.path("good"), "0123456789");
    ::chmod(temp.path("good").c_str(), 0600);
    CacheFile const good = read_cache_file(top.get(), "good", 10);
    CHECK(good.outcome == Outcome::kGood);
    CHECK(good.bytes == "0123456789");
    write_raw(temp.path("long"), "0123456789a");
    ::chmod(temp.path("long").c_str(), 0600);
    write_raw(temp.path("open"), "x");
    ::chmod(temp.path("open").c_str(), 0666);
    std::filesystem::create_symlink(temp.path("good"), temp.path("link"));
    std::filesystem::create_symlink(temp.path("nowhere"), temp.path("dangling"));
    std::filesystem::create_directory(temp.path("folder"));
    REQUIRE(::mkfifo(temp.path("pipe").c_str(), 0600) == 0);
    REQUIRE(::mknod(temp.path("socket").c_str(), S_IFSOCK | 0600, 0) == 0);
    for (char const* name : {"long", "open", "link", "dangling", "folder", "pipe", "socket"}) {
        INFO(name);
        CacheFile const bad = read_cache_file(top.get(), name, 10);
        CHECK(bad.outcome == Outcome::kBad);
        CHECK(bad.status.code() == XQAJIT_CACHE_CORRUPT);
        CHECK(bad.bytes.empty());
        CHECK(bad.facts.st_ino != 0);  // so that it can be set aside
    }
    CHECK(outcome("missing") == Outcome::kMissing);
    CHECK(outcome("good/below") == Outcome::kUnreadable);
}

TEST_CASE("what is read is what was judged, while other files take the name", "[cache]") {
    TempDirectory const temp;
    UniqueFd const top = open_directory(temp.path());
    std::string const trusted = "trusted", foreign = "foreign";
    std::atomic<bool> done{false};
    std::thread swap([&] {
        for (int i = 0; !done; ++i) {
            bool const good = i % 2 == 0;
            std::string const fresh = temp.path("fresh");
            write_raw(fresh, good ? trusted : foreign);
            ::chmod(fresh.c_str(), good ? 0600 : 0666);
            ::rename(fresh.c_str(), temp.path("entry").c_str());
        }
    });
    bool wrong = false;
    int met = 0, tries = 0;
    for (; met < 2000 && tries < 1'000'000; ++tries) {
        CacheFile const file = read_cache_file(top.get(), "entry", 100);
        met += file.outcome == CacheFile::Outcome::kGood;
        wrong = wrong || (file.outcome == CacheFile::Outcome::kGood && file.bytes != trusted) || file.bytes == foreign;
    }
    done = true;
    swap.join();
    CHECK_FALSE(wrong);
    CHECK(met == 2000);
}
