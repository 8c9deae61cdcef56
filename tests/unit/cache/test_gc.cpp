#include "cache/gc.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace fs = std::filesystem;

namespace {

constexpr long kHour = 3600;

long age_of(std::string const& path) {
    struct stat file {};
    return ::lstat(path.c_str(), &file) == 0 ? ::time(nullptr) - file.st_mtime : -1000000;
}

// A cache of entries 0, 1, ... of equal sizes, last used so many hours ago.
struct Cache {
    explicit Cache(std::vector<long> const& hours) : store(open_store(temp.path("cache"))) {
        for (std::size_t i = 0; i < hours.size(); ++i) {
            Entry const entry = sample_entry(static_cast<int>(i));
            if (!store->store(entry).ok()) throw std::runtime_error("cannot store");
            make_old(file(i), hours[i] * kHour);
        }
    }
    std::string file(std::size_t number) const { return file_of(*store, sample_key(static_cast<int>(number))); }
    std::string folder(std::size_t number) const { return fs::path(file(number)).parent_path(); }
    std::vector<int> kept(int count) const {
        std::vector<int> numbers;
        for (int number = 0; number < count; ++number)
            if (fs::exists(file(static_cast<std::size_t>(number)))) numbers.push_back(number);
        return numbers;
    }
    GcReport collect(GcLimits const& limits) const {
        Result<GcReport> report = store->collect(limits);
        if (!report.ok()) throw std::runtime_error(report.status().message());
        return *report;
    }

    TempDirectory const temp;
    std::shared_ptr<DiskStore> const store;
};

GcLimits by_size(std::uint64_t bytes, bool dry_run = false) { return {bytes, {}, {}, dry_run}; }
GcLimits by_age(std::uint64_t seconds, bool dry_run = false) { return {{}, {}, seconds, dry_run}; }

std::uint64_t const kEntryBytes = encode_entry(sample_entry(0)).size();

}  // namespace

TEST_CASE("by size the least recently used entries go, until the rest is within it", "[cache][gc]") {
    std::vector<long> const hours = {5, 2, 9, 1, 7};
    struct Row {
        std::uint64_t bytes;
        std::vector<int> kept;
    };
    for (Row const& row :
         {Row{5 * kEntryBytes, {0, 1, 2, 3, 4}}, Row{5 * kEntryBytes - 1, {0, 1, 3, 4}}, Row{3 * kEntryBytes, {0, 1, 3}},
          Row{2 * kEntryBytes + 1, {1, 3}}, Row{kEntryBytes, {3}}, Row{kEntryBytes - 1, {}}, Row{1, {}}}) {
        INFO(row.bytes << " bytes");
        Cache const cache(hours);
        REQUIRE(encode_entry(sample_entry(4)).size() == kEntryBytes);
        GcReport const foretold = cache.collect(by_size(row.bytes, true));
        CHECK(cache.kept(5).size() == 5);
        GcReport const report = cache.collect(by_size(row.bytes));
        CHECK(cache.kept(5) == row.kept);
        CHECK(report.kept.entries.files == row.kept.size());
        CHECK(report.kept.entries.bytes == row.kept.size() * kEntryBytes);
        CHECK(report.removed.entries.files == 5 - row.kept.size());
        CHECK(report.removed.entries.bytes == (5 - row.kept.size()) * kEntryBytes);
        CHECK(foretold.removed.entries.files == report.removed.entries.files);
        CHECK(foretold.removed.entries.bytes == report.removed.entries.bytes);
        CHECK(foretold.kept.entries.files == report.kept.entries.files);
        CHECK(foretold.kept.entries.bytes == report.kept.entries.bytes);
        CHECK(report.failed.empty());
        for (std::size_t i = 0; i < 5; ++i) {
            CHECK(fs::exists(cache.folder(i)) == fs::exists(cache.file(i)));
            CHECK(fs::exists(fs::path(cache.folder(i)).parent_path()) == fs::exists(cache.file(i)));
        }
    }
}

TEST_CASE("by age the entries go that were last used before it", "[cache][gc]") {
    std::vector<long> const hours = {5, 2, 9, 1, -1000};  // a time in the future counts as now
    struct Row {
        std::uint64_t seconds;
        std::vector<int> kept;
    };
    for (Row const& row :
         {Row{10 * kHour, {0, 1, 2, 3, 4}}, Row{8 * kHour, {0, 1, 3, 4}}, Row{kHour / 2, {4}}, Row{~0ull, {0, 1, 2, 3, 4}}}) {
        INFO(row.seconds << " seconds");
        Cache const cache(hours);
        GcReport const foretold = cache.collect(by_age(row.seconds, true));
        CHECK(cache.kept(5).size() == 5);
        GcReport const report = cache.collect(by_age(row.seconds));
        CHECK(cache.kept(5) == row.kept);
        CHECK(report.kept.entries.files == row.kept.size());
        CHECK(foretold.removed.entries.files == report.removed.entries.files);
    }
}

TEST_CASE("with both limits age goes first, and size takes no more than is needed then", "[cache][gc]") {
    Cache const cache({5, 2, 9, 1, 7});
    GcReport const report = cache.collect({3 * kEntryBytes, {}, 6 * kHour, false});
    CHECK(cache.kept(5) == std::vector<int>{0, 1, 3});
    CHECK(report.removed.entries.files == 2);
    CHECK(cache.collect({2 * kEntryBytes, {}, 6 * kHour, false}).removed.entries.files == 1);
    CHECK(cache.kept(5) == std::vector<int>{1, 3});
    CHECK(cache.collect({2 * kEntryBytes, kEntryBytes, {}, false}).removed.entries.files == 0);  // not past the limit
    CHECK(cache.collect({2 * kEntryBytes - 1, kEntryBytes, {}, false}).removed.entries.files == 1);
    CHECK(cache.kept(5) == std::vector<int>{3});
}

TEST_CASE("times that are out of any range are an order like others", "[cache][gc]") {
    Cache const cache({1, 1, 1});
    timespec const times[2][2] = {{{-4000000000, 0}, {-4000000000, 0}}, {{8000000000, 0}, {8000000000, 0}}};
    REQUIRE(::utimensat(AT_FDCWD, cache.file(0).c_str(), times[0], 0) == 0);
    REQUIRE(::utimensat(AT_FDCWD, cache.file(1).c_str(), times[1], 0) == 0);
    CHECK(cache.collect(by_size(2 * kEntryBytes)).removed.entries.files == 1);
    CHECK(cache.kept(3) == std::vector<int>{1, 2});
    CHECK(cache.collect(by_size(kEntryBytes)).removed.entries.files == 1);
    CHECK(cache.kept(3) == std::vector<int>{1});
}

TEST_CASE("a load is a use, and notes it once an hour", "[cache][gc]") {
    Cache const cache({5, 2, 0, -5});
    make_old(cache.file(2), 1800);
    REQUIRE(cache.store->peek(sample_key(0)));
    CHECK(age_of(cache.file(0)) >= 5 * kHour);  // looking is no use
    (void)cache.store->list();
    CHECK(age_of(cache.file(0)) >= 5 * kHour);
    std::string const bytes = read_raw(cache.file(0));
    for (int const number : {0, 2, 3}) REQUIRE(cache.store->load(sample_key(number)));
    CHECK(std::abs(age_of(cache.file(0))) < 60);
    CHECK(age_of(cache.file(2)) >= 1800);
    CHECK(std::abs(age_of(cache.file(3))) < 60);  // a time far in the future is mended
    CHECK(read_raw(cache.file(0)) == bytes);
    cache.collect(by_size(3 * kEntryBytes));
    CHECK(cache.kept(4) == std::vector<int>{0, 2, 3});
}

TEST_CASE("of the entries of any compiler only the one that serves is used", "[cache][gc]") {
    TempDirectory const temp;
    auto const store = open_store(temp.path());
    for (int const compiler : {0, 1}) {
        Entry entry = sample_entry(1, 100, compiler);
        entry.metadata = compiler == 1 ? R"({"nvrtc_version": "13.0"})" : R"({"nvrtc_version": "12.4"})";
        REQUIRE(store->store(entry).ok());
        make_old(file_of(*store, entry.key), 3 * kHour);
    }
    REQUIRE(store->load_any_compiler(sample_key(1).body));
    CHECK(age_of(file_of(*store, sample_key(1, 0))) >= 3 * kHour);
    CHECK(std::abs(age_of(file_of(*store, sample_key(1, 1)))) < 60);
}

TEST_CASE("temporary and quarantined files go after an hour, whatever the limits", "[cache][gc]") {
    Cache const cache({1, 1});
    Warnings const warnings;
    for (char const* name : {"/.tmp-1-0", "/.tmp-gc-1-0-0"}) write_raw(cache.folder(0) + name, "half");
    write_raw(cache.folder(1) + "/.tmp-1-1", "half");
    make_old(cache.folder(0) + "/.tmp-1-0", 2 * kHour);
    make_old(cache.folder(0) + "/.tmp-gc-1-0-0", 2 * kHour);
    write_raw(cache.file(1), "damaged");
    make_old(cache.file(1), 1000 * kHour);
    CHECK(!cache.store->load(sample_key(1)));  // sets it aside: its hour begins now
    std::string const quarantine = cache.temp.path("cache/quarantine");
    write_raw(quarantine + "/old.bad", "x");
    write_raw(quarantine + "/notes", "x");
    for (char const* name : {"/old.bad", "/notes"}) make_old(quarantine + name, 2 * kHour);

    GcReport const foretold = cache.collect(by_size(1 << 30, true));
    CHECK(fs::exists(quarantine + "/old.bad"));
    GcReport const report = cache.collect(by_size(1 << 30));
    for (GcReport const& each : {foretold, report}) {
        CHECK(each.removed.entries.files == 0);
        CHECK(each.kept.entries.files == 1);
        CHECK(each.removed.temporaries.files == 2);
        CHECK(each.removed.temporaries.bytes == 8);
        CHECK(each.kept.temporaries.files == 1);
        CHECK(each.removed.quarantined.files == 1);
        CHECK(each.kept.quarantined.files == 1);
    }
    CHECK(fs::exists(cache.folder(1) + "/.tmp-1-1"));
    CHECK(!fs::exists(cache.folder(0) + "/.tmp-1-0"));
    CHECK(!fs::exists(quarantine + "/old.bad"));
    CHECK(fs::exists(quarantine + "/notes"));
    CHECK(std::distance(fs::directory_iterator(quarantine), {}) == 2);
}

TEST_CASE("a collection removes empty folders, and none with strangers in it", "[cache][gc]") {
    Cache const cache({5, 5, 1});
    write_raw(cache.folder(1) + "/notes", "x");
    std::string const empty = cache.temp.path("cache/ab/ab" + std::string(30, '0'));
    fs::create_directories(empty);
    fs::permissions(empty, fs::perms(0700));
    fs::permissions(fs::path(empty).parent_path(), fs::perms(0700));
    fs::create_directories(cache.temp.path("cache/zz"));
    CHECK(cache.collect(by_age(2 * kHour, true)).removed.entries.files == 2);
    CHECK(fs::exists(empty));
    CHECK(cache.collect(by_age(2 * kHour)).removed.entries.files == 2);
    CHECK(!fs::exists(cache.folder(0)));
    CHECK(read_raw(cache.folder(1) + "/notes") == "x");
    CHECK(fs::exists(cache.file(2)));
    CHECK(!fs::exists(cache.temp.path("cache/ab")));
    CHECK(fs::exists(cache.temp.path("cache/zz")));
}

TEST_CASE("a missing directory has nothing to collect, and stays missing", "[cache][gc]") {
    TempDirectory const temp;
    Result<GcReport> const report = open_store(temp.path("cache"))->collect(by_size(1));
    REQUIRE(report.ok());
    CHECK(report->removed.entries.files + report->kept.entries.files == 0);
    CHECK(!fs::exists(temp.path("cache")));
    CHECK(DiskStore::disabled("no home")->collect(by_size(1)).status().message() == "no home");
}

TEST_CASE("a directory with a cap is collected to 80 % of it, least recently used first", "[cache][gc]") {
    Cache const cache({5, 2, 9, 1, 7, 8, 6, 4, 3, 10});
    Warnings const warnings;
    auto const capped = DiskStore::open({cache.temp.path("cache"), "argument"}, 10 * kEntryBytes + kEntryBytes / 2);
    REQUIRE(capped->load(sample_key(9)));  // the oldest, used now
    REQUIRE(capped->store(sample_entry(10)).ok());
    CHECK(cache.kept(11) == std::vector<int>{0, 1, 3, 6, 7, 8, 9, 10});
    CHECK(warnings.count() == 0);

    // Each tenth of the cap that is stored is looked at again.
    for (int number = 11; number < 40; ++number) {
        REQUIRE(capped->store(sample_entry(number)).ok());
        CHECK(cache.kept(40).size() <= 11);
    }
    CHECK(capped->load(sample_key(39)));

    auto const roomy = DiskStore::open({cache.temp.path("cache"), "argument"}, 1u << 30);
    REQUIRE(roomy->store(sample_entry(50)).ok());
    auto const unlimited = open_store(cache.temp.path("cache"));
    for (int number = 60; number < 100; ++number) REQUIRE(unlimited->store(sample_entry(number)).ok());
    CHECK(cache.kept(100).size() >= 48);
}

TEST_CASE("a cap is judged after the first store and each tenth of it", "[cache][gc]") {
    SizeCap cap(1000);
    CHECK(cap.is_due(1));
    CHECK(!cap.is_due(60));
    CHECK(cap.is_due(60));
    CHECK(!cap.is_due(99));
    CHECK(cap.is_due(1));
    SizeCap none(0);
    CHECK(!none.is_due(1u << 30));
    CHECK(SizeCap(1000).limits().max_bytes == 1000);
    CHECK(SizeCap(1000).limits().down_to_bytes == 800);
}
