// What a disk, a power cut or another program can do to an entry: each is met, set aside, told once, and healed by the next store.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <random>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace fs = std::filesystem;

namespace {

struct Damage {
    std::string name;
    std::function<void(std::string const& file)> apply;
    std::string reason;  // part of the warning
};

Damage replaced_by(std::string const& name, std::string const& bytes, std::string const& reason) {
    return {name, [bytes](std::string const& file) { write_raw(file, bytes); }, reason};
}

std::vector<Damage> damages(Entry const& entry) {
    std::string const bytes = encode_entry(entry);
    std::size_t const metadata = 52;
    std::size_t const signature = metadata + entry.metadata.size();
    std::size_t const image = signature + 12;
    std::vector<Damage> all;
    for (std::size_t const length :
         {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{12}, std::size_t{16}, std::size_t{48}, metadata, metadata + 3,
          signature, signature + 4, image, image + 1, bytes.size() / 2, bytes.size() - 16, bytes.size() - 1})
        all.push_back(replaced_by("cut to " + std::to_string(length), bytes.substr(0, length), "length"));
    all.push_back(replaced_by("followed by a byte", bytes + "x", "length"));
    struct Region {
        char const* name;
        std::size_t offset;
        char const* reason;
    };
    for (Region const& region :
         {Region{"magic", 0, "magic"}, Region{"version", 8, "version"}, Region{"flags", 12, "checksum"},
          Region{"body", 16, "checksum"}, Region{"compiler", 47, "checksum"}, Region{"metadata's length", 48, "signature"},
          Region{"metadata", metadata, "checksum"}, Region{"signature", signature, "signature"},
          Region{"image's length", signature + 4, "length"}, Region{"first byte of the image", image, "checksum"},
          Region{"last byte of the image", bytes.size() - 17, "checksum"}, Region{"trailer", bytes.size() - 16, "checksum"}}) {
        std::string flipped = bytes;
        flipped[region.offset] = static_cast<char>(flipped[region.offset] ^ 4);
        all.push_back(replaced_by(std::string("a bit flipped in the ") + region.name, flipped, region.reason));
    }
    all.push_back(replaced_by("zeros", std::string(bytes.size(), '\0'), "magic"));
    all.push_back(replaced_by("another body inside", encode_entry(sample_entry(77)), "key is"));
    all.push_back(replaced_by("another compiler inside", encode_entry(sample_entry(1, 1000, 9)), "key is"));
    all.push_back(
        {"larger than any entry", [](std::string const& file) { fs::resize_file(file, kMaxEntryBytes + 1); }, "67108865 bytes"});
    auto const instead = [&](std::string const& name, std::function<void(std::string const&)> const& make) {
        all.push_back({name,
                       [make](std::string const& file) {
                           fs::remove(file);
                           make(file);
                       },
                       "not a regular file"});
    };
    instead("an empty directory", [](std::string const& file) { fs::create_directory(file); });
    instead("a full directory", [](std::string const& file) {
        fs::create_directory(file);
        write_raw(file + "/x", "x");
    });
    instead("a link to the entry itself", [bytes](std::string const& file) {
        write_raw(file + ".elsewhere", bytes);
        fs::create_symlink(file + ".elsewhere", file);
    });
    instead("a dangling link", [](std::string const& file) { fs::create_symlink("nowhere", file); });
    instead("a pipe", [](std::string const& file) { ::mkfifo(file.c_str(), 0600); });
    for (mode_t const mode : {0620, 0602, 0666})
        all.push_back({"writable by others", [mode](std::string const& file) { ::chmod(file.c_str(), mode); }, "has mode 06"});
    return all;
}

}  // namespace

TEST_CASE("a damaged entry is set aside with one warning and a later store heals it", "[cache][J07]") {
    Entry const entry = sample_entry(1);
    Entry const neighbour = sample_entry(1, 1000, 5);
    for (Damage const& damage : damages(entry)) {
        INFO(damage.name);
        TempDirectory const temp;
        Warnings const warnings;
        auto const store = open_store(temp.path());
        REQUIRE(store->store(entry).ok());
        REQUIRE(store->store(neighbour).ok());
        std::string const file = file_of(*store, entry.key);
        damage.apply(file);

        CHECK(!store->load(entry.key));
        CHECK(store->quarantined() == 1);
        REQUIRE(warnings.count() == 1);
        INFO(warnings.texts()[0]);
        CHECK(warnings.texts()[0].find(file) == 0);
        CHECK(warnings.texts()[0].find(damage.reason) != std::string::npos);
        std::string const aside = "quarantine/" + entry.key.body.hex() + "-" + entry.key.compiler.hex() + "-0.bad";
        CHECK(fs::symlink_status(temp.path(aside)).type() != fs::file_type::not_found);
        CHECK(fs::symlink_status(file).type() == fs::file_type::not_found);

        CHECK(!store->load(entry.key));  // gone: a plain miss
        CHECK(warnings.count() == 1);
        CHECK(store->store(entry).ok());
        auto const healed = store->load(entry.key);
        CHECK((healed && same(*healed, entry)));
        CHECK(store->load(neighbour.key));
        CHECK(warnings.count() == 1);
    }
}

TEST_CASE("an entry that is damaged again and again fills the quarantine to its bound and no further", "[cache][J07]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    Entry const entry = sample_entry(1);
    for (int round = 0; round < 105; ++round) {
        REQUIRE(store->store(entry).ok());
        write_raw(file_of(*store, entry.key), "damaged");
        REQUIRE(!store->load(entry.key));
        REQUIRE(!fs::exists(file_of(*store, entry.key)));
    }
    CHECK(std::distance(fs::directory_iterator(temp.path("quarantine")), {}) == 100);
    CHECK(store->quarantined() == 105);
    CHECK(warnings.count() == 105);
}

TEST_CASE("a bad entry is removed where the quarantine cannot be used", "[cache][J07]") {
    for (bool const directory_in_place : {false, true}) {
        TempDirectory const temp;
        Warnings const warnings;
        auto const store = open_store(temp.path());
        Entry const entry = sample_entry(1);
        REQUIRE(store->store(entry).ok());
        std::string const file = file_of(*store, entry.key);
        write_raw(temp.path("quarantine"), "a file in its place");
        write_raw(file, "damaged");
        if (directory_in_place) {
            fs::remove(file);
            fs::create_directory(file);
        }
        CHECK(!store->load(entry.key));
        CHECK(!fs::exists(file));
        CHECK(store->store(entry).ok());
        CHECK(store->load(entry.key));
    }
}

TEST_CASE("a bad entry that cannot be moved stays a miss, told once", "[cache][J07]") {
    TempDirectory const temp;
    Warnings const warnings;
    auto const store = open_store(temp.path());
    Entry const entry = sample_entry(1);
    REQUIRE(store->store(entry).ok());
    std::string const file = file_of(*store, entry.key);
    SECTION("a full directory in its place, no quarantine") {
        write_raw(temp.path("quarantine"), "a file in its place");
        fs::remove(file);
        fs::create_directories(file + "/x");
        for (int round = 0; round < 3; ++round) CHECK(!store->load(entry.key));
        CHECK(warnings.count() == 1);
        CHECK(store->store(entry).code() == XQAJIT_UNAVAILABLE);
        CHECK(!store->load(entry.key));
        CHECK(warnings.count() == 2);
    }
    SECTION("a cache of a user who cannot write it") {
        write_raw(file, "damaged");
        for (auto path = fs::path(file); path != fs::path(temp.path()).parent_path(); path = path.parent_path()) {
            give_to_ordinary_user(path);
            fs::permissions(path, fs::is_directory(path) ? fs::perms(0555) : fs::perms(0444));
        }
        int const code = as_ordinary_user([&] {
            auto const mine = open_store(temp.path());
            for (int round = 0; round < 3; ++round)
                if (mine->load(entry.key)) return 1;
            if (warnings.count() != 1) return 2;
            return read_raw(file) == "damaged" && mine->state().usable && !mine->state().writable ? 0 : 3;
        });
        CHECK(code == 0);
    }
}

TEST_CASE("something else in place of an entry's folder is a miss, and told once", "[cache][J07]") {
    Entry const entry = sample_entry(1);
    for (int const levels_up : {1, 2})
        for (char const* kind : {"file", "link", "shared"}) {
            INFO(kind << " " << levels_up << " up");
            TempDirectory const temp;
            Warnings const warnings;
            auto const store = open_store(temp.path());
            REQUIRE(store->store(entry).ok());
            fs::path folder = fs::path(file_of(*store, entry.key)).parent_path();
            if (levels_up == 2) folder = folder.parent_path();
            if (kind == std::string("shared")) {
                fs::permissions(folder, fs::perms(0777));
            } else {
                fs::rename(folder, temp.path("moved"));
                if (kind == std::string("file")) write_raw(folder, "x");
                if (kind == std::string("link")) fs::create_directory_symlink(temp.path("moved"), folder);
            }
            for (int round = 0; round < 3; ++round) CHECK(!store->load(entry.key));
            CHECK(warnings.count() == 1);
            CHECK(!store->load_any_compiler(entry.key.body));
            for (int round = 0; round < 3; ++round) CHECK(store->store(entry).code() == XQAJIT_UNAVAILABLE);
            CHECK(warnings.count() == 2);
            Listing const listing = store->list();
            CHECK(listing.entries.empty());
            REQUIRE(listing.unlisted.size() == 1);
            CHECK(listing.unlisted[0].path == folder);
            CHECK(listing.unlisted[0].status.code() == XQAJIT_CACHE_CORRUPT);
            CHECK(store->quarantined() == 0);
        }
}

TEST_CASE("times of files decide nothing", "[cache][J11]") {
    TempDirectory const temp;
    Warnings const warnings;
    std::vector<Entry> entries;
    for (int compiler = 0; compiler < 8; ++compiler) {
        entries.push_back(sample_entry(1, 500, compiler));
        entries.back().metadata = R"({"nvrtc_version": "13.)" + std::to_string(7 - compiler) + "\"}";
        REQUIRE(open_store(temp.path())->store(entries.back()).ok());
    }
    std::mt19937 random(1);
    for (int round = 0; round < 10; ++round) {
        for (auto const& item : fs::recursive_directory_iterator(temp.path())) {
            timespec const times[2] = {{static_cast<time_t>(random() % 4000000000u), 0},
                                       {static_cast<time_t>(random() % 4000000000u), 0}};
            REQUIRE(::utimensat(AT_FDCWD, item.path().c_str(), times, 0) == 0);
        }
        auto const store = open_store(temp.path());
        for (Entry const& entry : entries) {
            auto const loaded = store->load(entry.key);
            CHECK((loaded && same(*loaded, entry)));
        }
        auto const best = store->load_any_compiler(entries[0].key.body);
        CHECK((best && same(*best, entries[0])));
    }
    CHECK(warnings.count() == 0);
}
