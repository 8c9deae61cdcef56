#include "cache/bundle.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "cache/compression.h"
#include "cache/signature.h"
#include "catch.h"
#include "unit/cache/bundle_fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

// Of the bundle itself, else of the first of its entries that cannot be read.
Status whole(std::string const& bytes) {
    Result<std::shared_ptr<Bundle const>> const bundle = Bundle::view(bytes, "b.xqb");
    if (!bundle.ok()) return bundle.status();
    for (BundleRecord const& record : (*bundle)->records())
        if (Result<Entry> const entry = (*bundle)->read(record); !entry.ok()) return entry.status();
    return {};
}

bool is_corrupt(Status const& status, std::string const& reason) {
    return status.code() == XQAJIT_CACHE_CORRUPT && status.message().find("b.xqb") != std::string::npos &&
           status.message().find(reason) != std::string::npos;
}

}  // namespace

TEST_CASE("a bundle gives back the entries it was made of, by their keys, and nothing else", "[cache][bundle]") {
    std::vector<Entry> const entries = sample_entries({1, 2, 3, 4, 5});
    std::string const signature(kSignatureBytes, 's');
    std::string const bytes = bundle_of(entries, signature);
    CHECK(bytes == bundle_of(entries, signature));  // the same entries, the same file
    Result<std::shared_ptr<Bundle const>> const opened = Bundle::view(bytes, "b.xqb");
    REQUIRE(opened.ok());
    Bundle const& bundle = **opened;
    CHECK(bundle.bytes() == bytes.size());
    CHECK(bundle.is_compressed() == has_compression());
    REQUIRE(bundle.records().size() == entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
        BundleRecord const* const record = bundle.find(entries[i].key);
        REQUIRE(record == &bundle.records()[i]);
        CHECK(record->metadata == entries[i].metadata);
        CHECK(record->is_ptx == entries[i].is_ptx);
        CHECK(record->image_bytes == entries[i].image.size());
        CHECK(record->signature == signature);
        CHECK(same(*bundle.read(*record), entries[i]));
        CHECK(bundle.of_body(entries[i].key.body).size() == 1);
    }
    CHECK(bundle.find(sample_key(6)) == nullptr);
    CHECK(bundle.find(sample_key(1, 1)) == nullptr);
    CHECK(bundle.of_body(sample_key(6).body).empty());
}

TEST_CASE("a bundle of one kernel by several compilers has them all under its body", "[cache][bundle]") {
    std::vector<Entry> entries = {sample_entry(1, 10, 1), sample_entry(1, 10, 2), sample_entry(1, 10, 3)};
    std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.key < b.key; });
    std::string const bytes = bundle_of(entries);
    Result<std::shared_ptr<Bundle const>> const bundle = Bundle::view(bytes, "b.xqb");
    REQUIRE(bundle.ok());
    CHECK((*bundle)->of_body(sample_key(1).body).size() == 3);
    CHECK((*bundle)->find(sample_key(1, 2)) != nullptr);
}

TEST_CASE("a bundle without entries is one", "[cache][bundle][J27]") {
    for (std::string const& bytes : {bundle_of({}), forge({.records = {}})}) {
        Result<std::shared_ptr<Bundle const>> const bundle = Bundle::view(bytes, "b.xqb");
        REQUIRE(bundle.ok());
        CHECK((*bundle)->records().empty());
        CHECK((*bundle)->find(sample_key(1)) == nullptr);
    }
}

TEST_CASE("a bundle cut anywhere or followed by anything is refused", "[cache][bundle][J27]") {
    for (std::string const& bytes : {bundle_of(sample_entries({1, 2})), forge({})}) {
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            INFO("length " << length);
            CHECK(is_corrupt(whole(bytes.substr(0, length)), "length is " + std::to_string(length)));
        }
        CHECK(is_corrupt(whole(bytes + '\0'), "length"));
        CHECK(is_corrupt(whole(bytes + bytes), "length"));
    }
}

TEST_CASE("a bundle with any one bit flipped is refused, or else the entry that has it", "[cache][bundle][J07]") {
    std::vector<Entry> const entries = {sample_entry(1, 40)};
    for (std::string const& bytes : {bundle_of(entries), forge({})})
        for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
            std::string damaged = bytes;
            damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
            INFO("bit " << bit);
            CHECK(whole(damaged).code() == XQAJIT_CACHE_CORRUPT);
        }
}

TEST_CASE("one damaged image costs its own entry alone", "[cache][bundle]") {
    std::vector<Entry> const entries = sample_entries({1, 2, 3});
    std::string bytes = bundle_of(entries);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    Result<std::shared_ptr<Bundle const>> const bundle = Bundle::view(bytes, "b.xqb");
    REQUIRE(bundle.ok());
    for (std::size_t i = 0; i < 2; ++i) CHECK(same(*(*bundle)->read((*bundle)->records()[i]), entries[i]));
    Result<Entry> const last = (*bundle)->read((*bundle)->records()[2]);
    CHECK(is_corrupt(last.status(), entries[2].key.body.hex() + ": checksum"));
}

TEST_CASE("a bundle's error names the check that failed", "[cache][bundle][J27]") {
    REQUIRE(whole(forge({})).ok());
    struct Case {
        char const* reason;
        std::function<void(Forged&)> change;
    };
    for (Case const& c : std::vector<Case>{
             {"magic", [](Forged& f) { f.magic[0] = '\x71'; }},
             {"magic", [](Forged& f) { f.magic[3] = 'A'; }},  // an entry's
             {"version is 0: this library reads 1", [](Forged& f) { f.version = 0; }},
             {"version is 2: this library reads 1", [](Forged& f) { f.version = 2; }},
             {"version is 16777216", [](Forged& f) { f.version = 1u << 24; }},  // the other byte order
             {"flags are 0x2", [](Forged& f) { f.flags = 2; }},
             {"its head says", [](Forged& f) { f.more_length = 1; }},
             {"its head says", [](Forged& f) { f.more_length = -1; }},
             {"length of the manifest", [](Forged& f) { f.more_entries = 1; }},
             {"behind the last entry", [](Forged& f) { f.more_entries = -1; }},
             {"number of entries is 65537", [](Forged& f) { f.more_entries = 65536; }},
             {"length of the manifest is 67108865",
              [](Forged& f) {
                  f.records = {};
                  f.more_manifest = (64 << 20) + 1;
              }},
             {"manifest: ", [](Forged& f) { f.more_manifest = 1; }},
             {"length of the packed manifest is", [](Forged& f) { f.more_packed_manifest = 100; }},
             {"length of the packed manifest is 18446744073709551615",
              [](Forged& f) {
                  f.records = {};
                  f.more_packed_manifest = -1;
              }},
             {"1 bytes are behind the last entry", [](Forged& f) { f.manifest_tail = "x"; }},
             {"1 bytes are behind the last image", [](Forged& f) { f.tail = "x"; }},
             {"entry 0: flags are 0x2", [](Forged& f) { f.records[0].flags = 2; }},
             {"entry 0: length of the metadata is 1048577", [](Forged& f) { f.records[0].metadata_bytes = (1 << 20) + 1; }},
             {"entry 0: the manifest ends within it", [](Forged& f) { f.records[0].metadata_bytes = 1 << 20; }},
             {"entry 0: length of the image is 0", [](Forged& f) { f.records[0].image_bytes = 0; }},
             {"entry 0: length of the image is 67108865", [](Forged& f) { f.records[0].image_bytes = (64 << 20) + 1; }},
             {"41 bytes in the place of 40",
              [](Forged& f) {
                  f.records[0].packed = std::string(41, 'x');
                  f.records[0].packed_bytes = 41;
              }},
             {"entry 0: length of the packed image is 41", [](Forged& f) { f.records[0].packed_bytes = 41; }},
             {"entry 0: length of the packed image is 18446744073709551615", [](Forged& f) { f.records[0].packed_bytes = ~0ull; }},
             {"1 bytes are behind the last image", [](Forged& f) { f.records[0].packed_bytes = 39; }},
             {"entry 0: length of the signature is 31", [](Forged& f) { f.records[0].signature_bytes = 31; }},
             {"entry 0: the manifest ends within it", [](Forged& f) { f.records[0].signature_bytes = 32; }},
             {"entry 1: its key is not behind", [](Forged& f) { f.records.resize(2); }},
         }) {
        Forged forged;
        c.change(forged);
        Status const status = whole(forge(forged));
        INFO(c.reason << ": " << status.message());
        CHECK(is_corrupt(status, c.reason));
    }
}

TEST_CASE("the images of a bundle have 4 GiB together at most, however well they are packed", "[cache][bundle]") {
    Forged forged;
    forged.records.clear();
    for (int i = 0; i < 65; ++i) {
        ForgedRecord record;
        record.entry.key.body = {static_cast<std::uint64_t>(i), 0};
        record.image_bytes = kMaxEntryBytes;
        forged.records.push_back(record);
    }
    CHECK(is_corrupt(whole(forge(forged)), "entry 64: the images have more than 4294967296 bytes together"));
}

TEST_CASE("what is packed must be one frame of exactly the length that the manifest says", "[cache][bundle]") {
    if (!has_compression()) skip_test("this build has no zstd");
    std::string const text(1000, 'x');
    std::string const packed = *compress(text);
    CHECK(packed.size() < 100);
    CHECK(*decompress(packed, 1000) == text);
    for (std::uint64_t const size : {0, 1, 999, 1001, 1 << 30})
        CHECK(decompress(packed, size).status().code() == XQAJIT_CACHE_CORRUPT);
    for (std::string const& bad : {std::string(), std::string("x"), packed + packed, packed + '\0', packed.substr(1),
                                   packed.substr(0, packed.size() - 1), std::string(1000, 'x')})
        CHECK(decompress(bad, 1000).status().code() == XQAJIT_CACHE_CORRUPT);
}

TEST_CASE("a compressed bundle is refused by a build without zstd, which says so", "[cache][bundle]") {
    Forged forged;
    forged.flags = 1;
    Status const status = whole(forge(forged));
    if (has_compression())
        CHECK(is_corrupt(status, "manifest: zstd"));  // which a forged one is not
    else
        CHECK((status.code() == XQAJIT_UNAVAILABLE && status.message().find("this build has no zstd") != std::string::npos));
}

TEST_CASE("a writer keeps the limits that a reader asks for", "[cache][bundle]") {
    BundleWriter writer;
    Entry entry = sample_entry(1);
    entry.image.clear();
    CHECK(writer.add(entry, "").code() == XQAJIT_INVALID_ARGUMENT);
    entry = sample_entry(1);
    entry.metadata = std::string(kMaxMetadataBytes + 1, 'm');
    CHECK(writer.add(entry, "").code() == XQAJIT_INVALID_ARGUMENT);
    entry.metadata = std::string(kMaxMetadataBytes, 'm');
    for (int i = 0; i < 63; ++i) REQUIRE(writer.add(entry, "").ok());
    Status const status = writer.add(entry, "");
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(status.message().find("manifest passes 67108864 bytes") != std::string::npos);
}

TEST_CASE("a bundle's file may be replaced or cut while it is open: what is read is checked", "[cache][bundle][J03]") {
    TempDirectory const temp;
    std::string const path = temp.path("b.xqb");
    std::vector<Entry> const entries = sample_entries({1, 2});
    write_raw(path, bundle_of(entries));
    auto const open = [&] { return Bundle::open(UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), path); };
    Result<std::shared_ptr<Bundle const>> const bundle = open();
    REQUIRE(bundle.ok());
    write_raw(temp.path("new"), "nothing");
    std::filesystem::rename(temp.path("new"), path);
    CHECK(same(*(*bundle)->read((*bundle)->records()[1]), entries[1]));
    CHECK(open().status().code() == XQAJIT_CACHE_CORRUPT);

    write_raw(path, bundle_of(entries));
    Result<std::shared_ptr<Bundle const>> const cut = open();
    REQUIRE(cut.ok());
    std::filesystem::resize_file(path, (*cut)->bytes() - 1);
    CHECK(same(*(*cut)->read((*cut)->records()[0]), entries[0]));
    CHECK((*cut)->read((*cut)->records()[1]).status().message().find("1 are missing") != std::string::npos);
    CHECK(Bundle::open(UniqueFd(::open(temp.path().c_str(), O_RDONLY | O_CLOEXEC)), path).status().code() == XQAJIT_CACHE_CORRUPT);
}
