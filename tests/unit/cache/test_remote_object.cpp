#include "cache/remote_object.h"

#include <sys/stat.h>

#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

SigningKey key_of(TempDirectory const& temp, char fill) {
    std::string const path = temp.path(std::string("key-") + fill);
    write_raw(path, std::string(32, fill));
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
    Result<SigningKey> key = SigningKey::read(path);
    REQUIRE(key.ok());
    return *key;
}

struct Signed {
    Signed() {
        Result<std::string> const signature = key.sign(encode_entry(entry));
        if (!signature.ok()) skip_test("this build has no signatures");
        bytes = encode_remote(encode_entry(entry), *signature);
    }
    Status refusal(std::string const& changed, SigningKey const* with, bool allow_unsigned) const {
        Result<Entry> const taken = admit_remote(changed, entry.key, with, allow_unsigned);
        return taken.status();
    }
    TempDirectory temp;
    SigningKey key = key_of(temp, 'k');
    Entry entry = sample_entry(1);
    std::string bytes;
};

}  // namespace

TEST_CASE("an entry's name on a server is its key, and its bytes are as FORMAT.md says", "[cache][remote]") {
    CacheKey key;
    REQUIRE(Digest::parse("00112233445566778899aabbccddeeff", key.body));
    REQUIRE(Digest::parse("0123456789abcdef0123456789abcdef", key.compiler));
    CHECK(remote_name(key) == "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef");
    CHECK(encode_remote("entry", "") == std::string("\xF1XQR\r\n\x1A\n\x01\0\0\0\0\0\0\0entry", 21));
    CHECK(encode_remote("entry", std::string(32, 's')) ==
          std::string("\xF1XQR\r\n\x1A\n\x01\0\0\0\x20\0\0\0", 16) + std::string(32, 's') + "entry");
}

TEST_CASE("a signed entry is taken as it was, under its key file alone", "[cache][remote]") {
    Signed const at;
    Result<Entry> const taken = admit_remote(at.bytes, at.entry.key, &at.key, false);
    REQUIRE(taken.ok());
    CHECK(same(*taken, at.entry));
    SigningKey const other = key_of(at.temp, 'o');
    for (bool const allow_unsigned : {false, true})
        CHECK(at.refusal(at.bytes, &other, allow_unsigned).message().find("signature is not that of key file") == 0);
    CHECK(at.refusal(at.bytes, nullptr, false).message().find("XQAJIT_CACHE_KEY_FILE is not set") != std::string::npos);
    CHECK(at.refusal(at.bytes, nullptr, true).ok());
}

TEST_CASE("each changed, missing or added byte of a signed entry is a refusal", "[cache][remote][J07][J27]") {
    Signed const at;
    for (std::size_t i = 0; i < at.bytes.size(); ++i) {
        std::string changed = at.bytes;
        changed[i] = static_cast<char>(changed[i] ^ 0x10);
        INFO(i);
        REQUIRE(at.refusal(changed, &at.key, false).code() == XQAJIT_CACHE_CORRUPT);
        REQUIRE(at.refusal(at.bytes.substr(0, i), &at.key, false).code() == XQAJIT_CACHE_CORRUPT);
        // Where signatures are not asked for, the checks of an entry still are.
        if (i < 16 || i >= 48) REQUIRE(at.refusal(changed, nullptr, true).code() == XQAJIT_CACHE_CORRUPT);
        REQUIRE(at.refusal(at.bytes.substr(0, i), nullptr, true).code() == XQAJIT_CACHE_CORRUPT);
    }
    CHECK(at.refusal(at.bytes + 'x', &at.key, false).code() == XQAJIT_CACHE_CORRUPT);
    CHECK(at.refusal(at.bytes + 'x', nullptr, true).code() == XQAJIT_CACHE_CORRUPT);
}

TEST_CASE("an entry without a signature is let in by name alone", "[cache][remote]") {
    Signed const at;
    std::string const bare = encode_remote(encode_entry(at.entry), "");
    CHECK(at.refusal(bare, &at.key, false).message().find("XQAJIT_REMOTE_ALLOW_UNSIGNED=1") != std::string::npos);
    CHECK(at.refusal(bare, &at.key, true).ok());
    CHECK(at.refusal(bare, nullptr, true).ok());
}

TEST_CASE("a rightly signed entry under the name of another, or of another version, is refused", "[cache][remote][J27]") {
    Signed const at;
    for (CacheKey const& wanted : {sample_key(2), sample_key(1, 1)}) {
        Result<Entry> const taken = admit_remote(at.bytes, wanted, &at.key, false);
        CHECK(taken.status().message().find("key is") != std::string::npos);
    }
    std::string newer = at.bytes;
    newer[8] = 2;
    CHECK(at.refusal(newer, &at.key, true).message().find("version is 2: this library reads 1") != std::string::npos);
    CHECK(at.refusal(std::string(kMaxRemoteBytes + 1, 'x'), &at.key, true).message().find("accepted are up to") !=
          std::string::npos);
}
