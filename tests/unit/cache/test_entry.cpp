#include "cache/entry.h"

#include <functional>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

std::string unhex(std::string const& hex) {
    std::string bytes;
    for (std::size_t i = 0; i < hex.size(); i += 2) bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

// With the checksum made right again: what only a writer gone wrong can produce.
std::string resealed(std::string bytes) {
    Digest const checksum = digest_of(std::string_view(bytes).substr(0, bytes.size() - 16));
    for (int i = 0; i < 8; ++i) {
        bytes[bytes.size() - 16 + i] = static_cast<char>(checksum.low >> (8 * i));
        bytes[bytes.size() - 8 + i] = static_cast<char>(checksum.high >> (8 * i));
    }
    return bytes;
}

bool says(Result<Entry> const& result, std::string const& check) {
    return !result.ok() && result.status().code() == XQAJIT_CACHE_CORRUPT &&
           result.status().message().find(check) != std::string::npos;
}

}  // namespace

TEST_CASE("an entry's bytes are those that the format describes", "[cache]") {
    // Written by another program from FORMAT.md.
    std::string const bytes = unhex(
        "f15851410d0a1a0a"                  // magic
        "0100000001000000"                  // version, flags: PTX
        "0102030405060708090a0b0c0d0e0f10"  // body
        "1112131415161718191a1b1c1d1e1f20"  // compiler
        "070000007b2261223a317d"            // metadata
        "00000000"                          // signature
        "0500000000000000494d414745"        // image
        "987e17c08df05e65a6531a14c8637c14");
    Entry const entry{
        {{0x100f0e0d0c0b0a09, 0x0807060504030201}, {0x201f1e1d1c1b1a19, 0x1817161514131211}}, "{\"a\":1}", true, "IMAGE"};
    CHECK(encode_entry(entry) == bytes);
    Result<Entry> const decoded = decode_entry(bytes);
    REQUIRE(decoded.ok());
    CHECK(same(*decoded, entry));
}

TEST_CASE("an entry survives encoding whatever it holds", "[cache]") {
    for (std::size_t const image_bytes : {1, 2, 15, 16, 17, 240, 241, 100000})
        for (std::string const& metadata :
             {std::string(), std::string("{}"), std::string(70000, 'm'), std::string("\0\n\xff", 3)}) {
            Entry entry = sample_entry(static_cast<int>(image_bytes), image_bytes);
            entry.metadata = metadata;
            Result<Entry> const decoded = decode_entry(encode_entry(entry), entry.key);
            REQUIRE(decoded.ok());
            CHECK(same(*decoded, entry));
        }
}

TEST_CASE("an entry cut anywhere or followed by anything is refused", "[cache][J07]") {
    std::string const bytes = encode_entry(sample_entry(1, 40));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        INFO("length " << length);
        CHECK(says(decode_entry(std::string_view(bytes).substr(0, length)), "length"));
    }
    CHECK(says(decode_entry(bytes + '\0'), "length"));
    CHECK(says(decode_entry(bytes + bytes), "length"));
}

TEST_CASE("an entry with any one bit flipped is refused", "[cache][J07]") {
    std::string const bytes = encode_entry(sample_entry(1, 40));
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        std::string damaged = bytes;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        Result<Entry> const decoded = decode_entry(damaged);
        INFO("bit " << bit);
        CHECK((!decoded.ok() && decoded.status().code() == XQAJIT_CACHE_CORRUPT));
    }
}

TEST_CASE("an entry's error names the check that failed", "[cache]") {
    Entry const entry = sample_entry(2, 40);
    std::string const bytes = encode_entry(entry);
    std::size_t const metadata_bytes = entry.metadata.size();
    struct Case {
        char const* check;
        std::size_t offset;
        char value;
    };
    for (Case const& c :
         {Case{"magic", 0, 'x'}, Case{"magic", 7, 'x'}, Case{"version is 2", 8, 2}, Case{"version is 0", 8, 0},
          Case{"flags are 0x2", 12, 2}, Case{"flags are 0x80000000", 15, '\x80'}, Case{"length of the metadata", 48, 127},
          Case{"length of the metadata is 16777", 51, 1}, Case{"signature is 1 bytes", 52 + metadata_bytes, 1},
          Case{"length of the image is 41", 56 + metadata_bytes, 41}, Case{"length of the image", 63 + metadata_bytes, '\xff'}}) {
        std::string damaged = bytes;
        damaged[c.offset] = c.value;
        Result<Entry> const decoded = decode_entry(resealed(damaged));
        INFO(c.check << ": " << decoded.status().message());
        CHECK(says(decoded, c.check));
    }
    std::string damaged = bytes;
    damaged.back() = static_cast<char>(damaged.back() ^ 1);
    CHECK(says(decode_entry(damaged), "checksum"));
    Entry empty = entry;
    empty.image.clear();
    CHECK(says(decode_entry(encode_entry(empty)), "image is empty"));
    CHECK(says(decode_entry(std::string(kMaxEntryBytes + 1, '\0')), "length is 67108865 bytes"));
}

TEST_CASE("an entry under another entry's name is refused", "[cache][J07]") {
    Entry const entry = sample_entry(3);
    std::string const bytes = encode_entry(entry);
    CHECK(decode_entry(bytes, entry.key).ok());
    for (CacheKey const& other : {sample_key(4), sample_key(3, 1), CacheKey{entry.key.compiler, entry.key.body}, CacheKey{}})
        CHECK(says(decode_entry(bytes, other), "key is " + entry.key.body.hex()));
}

TEST_CASE("the limits of an entry are checked before it is written", "[cache]") {
    Entry entry = sample_entry(5, 1);
    CHECK(check_limits(entry).ok());
    std::uint64_t const framing = encode_entry(entry).size() - 1 - entry.metadata.size();

    entry.image.clear();
    CHECK(check_limits(entry).code() == XQAJIT_INVALID_ARGUMENT);
    entry.image.resize(kMaxEntryBytes - framing - entry.metadata.size());
    CHECK(check_limits(entry).ok());
    CHECK(decode_entry(encode_entry(entry)).ok());
    entry.image.push_back('x');
    CHECK(check_limits(entry).message().find("image is 67108") != std::string::npos);

    entry.image = "x";
    entry.metadata.assign(kMaxMetadataBytes, ' ');
    CHECK(check_limits(entry).ok());
    CHECK(decode_entry(encode_entry(entry)).ok());
    entry.metadata.push_back(' ');
    CHECK(check_limits(entry).message() == "cache entry: metadata is 1048577 bytes: accepted are 0..1048576");
}
