// Collections beside other processes, and in directories where not all is one's own.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <random>

#include "cache/gc.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kTooMany = 100000;  // seconds

void make_old(std::string const& path) { test::make_old(path, 1000000); }

GcLimits by_age() { return {{}, {}, kTooMany, false}; }
GcLimits everything() { return {1, {}, {}, false}; }

bool names(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// A child that loops until it is killed, at the latest with the test that started it.
pid_t start_looping(std::function<int()> const& body) {
    return start_child([&] { return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? body() : 98; });
}

// Collects until it is killed; ends by itself at the first failure.
pid_t start_collector(std::string const& path, GcLimits const& limits) {
    return start_looping([&] {
        Warnings const warnings;
        auto const store = open_store(path);
        while (true) {
            Result<GcReport> const report = store->collect(limits);
            if (!report.ok()) return 1;
            if (!report->failed.empty()) return 2;
            if (warnings.count() != 0) return 3;
        }
    });
}

void stop_collector(pid_t collector) {
    ::kill(collector, SIGKILL);
    CHECK(wait_child(collector) == 1000 + SIGKILL);
}

}  // namespace

TEST_CASE("readers and writers beside collections see whole entries and no error", "[cache][gc]") {
    TempDirectory const temp;
    constexpr int kNumbers = 6;
    REQUIRE(open_store(temp.path())->make_directory().ok());
    std::vector<pid_t> collectors;
    for (int i = 0; i < 2; ++i) collectors.push_back(start_collector(temp.path(), everything()));
    std::vector<pid_t> children;
    for (int child = 0; child < 3; ++child)
        children.push_back(start_child([&, child] {
            Warnings const warnings;
            auto const store = open_store(temp.path());
            for (int round = 0; round < 400; ++round) {
                Entry const entry = sample_entry((round + child) % kNumbers, 3000);
                if (Status const status = store->store(entry); !status.ok()) return 10;
                auto const loaded = store->load(entry.key);  // or a miss: it was a victim
                if (loaded && !same(*loaded, entry)) return 11;
                auto const any = store->load_any_compiler(entry.key.body);
                if (any && !same(*any, entry)) return 12;
            }
            if (store->quarantined() != 0) return 13;
            return warnings.count() == 0 ? 0 : 14;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    for (pid_t const collector : collectors) stop_collector(collector);
    auto const store = open_store(temp.path());
    for (ListedEntry const& listed : store->list().entries) CHECK(listed.status.ok());
    for (int number = 0; number < kNumbers; ++number) CHECK(store->store(sample_entry(number, 3000)).ok());
    CHECK(store->list().entries.size() == kNumbers);
}

TEST_CASE("an entry that is published again over an old one outlives the collection", "[cache][gc]") {
    TempDirectory const temp;
    constexpr int kNumbers = 4;
    auto const store = open_store(temp.path());
    REQUIRE(store->make_directory().ok());
    std::vector<pid_t> collectors;
    for (int i = 0; i < 2; ++i) collectors.push_back(start_collector(temp.path(), by_age()));
    for (int round = 0; round < 200; ++round) {
        Entry const entry = sample_entry(round % kNumbers, 2000);
        REQUIRE(store->store(entry).ok());
        make_old(file_of(*store, entry.key));  // a victim by rule from now on
        if (round % 3 == 0) ::usleep(300);
        REQUIRE(store->store(entry).ok());  // and a fresh one again
        bool found = false;                 // at once, or when a collection that had moved the old one has looked at it
        for (int attempt = 0; attempt < 1000 && !found; ++attempt) {
            if (attempt > 0) ::usleep(1000);
            auto const loaded = store->load(entry.key);
            found = loaded && same(*loaded, entry);
        }
        REQUIRE(found);
    }
    for (pid_t const collector : collectors) stop_collector(collector);
    CHECK(store->quarantined() == 0);
    CHECK(store->list().entries.size() == kNumbers);
}

TEST_CASE("a store outlives folders that vanish under it", "[cache][gc]") {
    TempDirectory const temp;
    REQUIRE(open_store(temp.path("cache"))->make_directory().ok());
    pid_t const vandal = start_looping([&] {  // removes empty folders, as a collection does, and nothing else
        while (true) {
            std::error_code ignored;
            for (auto prefix = fs::directory_iterator(temp.path("cache"), ignored); prefix != fs::directory_iterator();
                 prefix.increment(ignored)) {
                for (auto body = fs::directory_iterator(prefix->path(), ignored); body != fs::directory_iterator();
                     body.increment(ignored))
                    ::rmdir(body->path().c_str());
                ::rmdir(prefix->path().c_str());
            }
        }
        return 0;
    });
    Warnings const warnings;
    auto const store = open_store(temp.path("cache"));
    for (int number = 0; number < 300; ++number) {
        Entry const entry = sample_entry(number % 5, 300);
        Status const status = store->store(entry);
        INFO(status.message());
        REQUIRE(status.ok());
        REQUIRE(fs::remove(file_of(*store, entry.key)));
    }
    ::kill(vandal, SIGKILL);
    wait_child(vandal);
    CHECK(warnings.count() == 0);
}

TEST_CASE("a collector killed at any moment loses nothing that was to be kept", "[cache][gc]") {
    TempDirectory const temp;
    std::mt19937 random(1);
    auto const store = open_store(temp.path());
    for (int round = 0; round < 20; ++round) {
        for (int number = 0; number < 20; ++number) {
            REQUIRE(store->store(sample_entry(number)).ok());
            if (number % 2 == 1) make_old(file_of(*store, sample_key(number)));
        }
        pid_t const collector = start_collector(temp.path(), by_age());
        ::usleep(random() % 5000);
        stop_collector(collector);
        for (int number = 0; number < 20; number += 2) REQUIRE(store->load(sample_key(number)));
    }
    CHECK(store->quarantined() == 0);
}

TEST_CASE("what is not the user's, or no regular file, is left and counted", "[cache][gc]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path("cache"));
    for (int const number : {1, 2, 3}) REQUIRE(store->store(sample_entry(number)).ok());
    write_raw(temp.path("victim"), "precious");
    make_old(temp.path("victim"));
    std::string const link = file_of(*store, sample_key(1)), folder = file_of(*store, sample_key(2));
    fs::remove(link);
    fs::create_symlink(temp.path("victim"), link);
    fs::remove(folder);
    fs::create_directory(folder);
    std::string const temporary = fs::path(folder).parent_path() / ".tmp-1-0";
    fs::create_symlink(temp.path("victim"), temporary);
    std::uint64_t foreign = 3;
    if (::geteuid() == 0) {
        std::string const other = fs::path(folder).parent_path() / file_of(*store, sample_key(2, 7)).substr(folder.rfind('/') + 1);
        write_raw(other, "another's");
        REQUIRE(::chown(other.c_str(), 12345, 12345) == 0);
        make_old(other);
        ++foreign;
    }
    fs::create_directory(temp.path("cache/quarantine"));
    fs::permissions(temp.path("cache/quarantine"), fs::perms(0700));
    std::string const aside = temp.path("cache/quarantine/x.bad");  // a link that failed its checks: it goes, not what it names
    fs::create_symlink(temp.path("victim"), aside);
    for (std::string const& each : {link, folder, temporary, aside}) make_old(each);
    Result<GcReport> const report = store->collect(everything());
    REQUIRE(report.ok());
    CHECK(report->failed.empty());
    CHECK(report->foreign.files == foreign);
    CHECK(report->removed.entries.files == 1);
    CHECK(report->removed.quarantined.files == 1);
    CHECK(!fs::is_symlink(aside));
    CHECK(read_raw(temp.path("victim")) == "precious");
    CHECK(fs::is_symlink(link));
    CHECK(fs::is_directory(folder));
    CHECK(fs::is_symlink(temporary));
}

TEST_CASE("a link in place of a folder is named, and nothing behind it is touched", "[cache][gc]") {
    for (char const* part : {"body", "prefix", "quarantine"}) {
        INFO(part);
        TempDirectory const temp;
        auto const store = open_store(temp.path("cache"));
        for (int const number : {1, 2}) REQUIRE(store->store(sample_entry(number)).ok());
        fs::create_directory(temp.path("cache/quarantine"));
        write_raw(temp.path("cache/quarantine/x.bad"), "x");
        make_old(temp.path("cache/quarantine/x.bad"));
        fs::path place = temp.path("cache/quarantine");
        if (part == std::string("body")) place = fs::path(file_of(*store, sample_key(1))).parent_path();
        if (part == std::string("prefix")) place = fs::path(file_of(*store, sample_key(1))).parent_path().parent_path();
        fs::rename(place, temp.path("moved"));
        fs::create_directory_symlink(temp.path("moved"), place);
        auto const count = [&] {
            return std::distance(fs::recursive_directory_iterator(temp.path("moved")), fs::recursive_directory_iterator());
        };
        auto const before = count();
        Result<GcReport> const report = store->collect(everything());
        REQUIRE(report.ok());
        REQUIRE(report->failed.size() == 1);
        CHECK(report->failed[0].path == place.string());
        CHECK(report->failed[0].status.code() == XQAJIT_CACHE_CORRUPT);
        CHECK(report->removed.entries.files == (part == std::string("quarantine") ? 2u : 1u));
        CHECK(count() == before);
        CHECK(fs::is_symlink(place));
    }
}

TEST_CASE("a read-only directory is an error that says so, and its entries keep their times", "[cache][gc]") {
    TempDirectory const temp;
    auto const maker = open_store(temp.path("cache"));
    REQUIRE(maker->store(sample_entry(1)).ok());
    std::string const file = file_of(*maker, sample_key(1));
    make_old(file);
    give_to_ordinary_user(temp.path("cache"));
    for (auto const& item : fs::recursive_directory_iterator(temp.path("cache"))) give_to_ordinary_user(item.path());
    fs::permissions(temp.path("cache"), fs::perms(0500));
    CHECK(as_ordinary_user([&] {
              Warnings const warnings;
              auto const store = open_store(temp.path("cache"));
              Result<GcReport> const report = store->collect(everything());
              if (report.ok() || report.status().code() != XQAJIT_UNAVAILABLE) return 1;
              if (!names(report.status().message(), "EACCES") || !names(report.status().message(), temp.path("cache"))) return 2;
              if (!store->load(sample_key(1))) return 3;
              return warnings.count() == 0 ? 0 : 4;
          }) == 0);
    struct stat status {};
    REQUIRE(::stat(file.c_str(), &status) == 0);
    CHECK(::time(nullptr) - status.st_mtime > 900000);
}

TEST_CASE("what cannot be removed is named, and the rest is removed", "[cache][gc]") {
    TempDirectory const temp;
    auto const maker = open_store(temp.path("cache"));
    for (int const number : {1, 2}) REQUIRE(maker->store(sample_entry(number)).ok());
    std::string const stuck = file_of(*maker, sample_key(1));
    give_to_ordinary_user(temp.path("cache"));
    for (auto const& item : fs::recursive_directory_iterator(temp.path("cache"))) give_to_ordinary_user(item.path());
    fs::permissions(fs::path(stuck).parent_path(), fs::perms(0500));
    CHECK(as_ordinary_user([&] {
              Result<GcReport> const report = open_store(temp.path("cache"))->collect(everything());
              if (!report.ok() || report->failed.size() != 1) return 1;
              if (report->failed[0].path != stuck || !names(report->failed[0].status.message(), "EACCES")) return 2;
              if (report->removed.entries.files != 1 || report->kept.entries.files != 1) return 3;
              // A cap that cannot be kept is one warning, and the stores succeed.
              Warnings const warnings;
              auto const capped = DiskStore::open({temp.path("cache"), "argument"}, 100);
              for (int number = 3; number < 6; ++number)
                  if (!capped->store(sample_entry(number)).ok()) return 4;
              return warnings.count() == 1 && names(warnings.texts()[0], "not kept within its size") ? 0 : 5;
          }) == 0);
    CHECK(fs::exists(stuck));
}
