#include "cache/signature.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cache/entry.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

std::string hex(std::string const& bytes) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (char const c : bytes) {
        text += kDigits[static_cast<unsigned char>(c) >> 4];
        text += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return text;
}

struct KeyFile {
    explicit KeyFile(std::string const& bytes = std::string(32, 'k'), mode_t mode = 0400) { write(bytes, mode); }
    void write(std::string const& bytes, mode_t mode) const {
        std::filesystem::remove(path);
        write_raw(path, bytes);
        REQUIRE(::chmod(path.c_str(), mode) == 0);
    }
    TempDirectory temp;
    std::string path = temp.path("key");
};

// The build has signatures and libcrypto is here; else the reason, of which the caller skips.
std::string no_signatures() {
    Result<std::string> const code = hmac_sha256("key", "text");
    return code.ok() ? "" : code.status().message();
}

#define NEEDS_SIGNATURES() \
    if (std::string const why = no_signatures(); !why.empty()) skip_test(why.c_str())

}  // namespace

TEST_CASE("HMAC-SHA-256 gives the codes of RFC 4231", "[cache][signature]") {
    NEEDS_SIGNATURES();
    struct Vector {
        std::string key, bytes;
        char const* code;
    };
    std::string counting;
    for (char c = 1; c <= 25; ++c) counting += c;
    for (Vector const& vector : std::vector<Vector>{
             {std::string(20, '\x0b'), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
             {"Jefe", "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
             {std::string(20, '\xaa'), std::string(50, '\xdd'), "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
             {counting, std::string(50, '\xcd'), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
             {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"}}) {
        Result<std::string> const code = hmac_sha256(vector.key, vector.bytes);
        REQUIRE(code.ok());
        CHECK(hex(*code) == vector.code);
    }
}

TEST_CASE("a signature holds for one entry and one key: any field that changes refuses it", "[cache][signature]") {
    NEEDS_SIGNATURES();
    KeyFile const file;
    Result<SigningKey> const key = SigningKey::read(file.path);
    REQUIRE(key.ok());
    Entry const entry = sample_entry(1);
    Result<std::string> const signature = key->sign(encode_entry(entry));
    REQUIRE(signature.ok());
    CHECK(signature->size() == kSignatureBytes);
    CHECK(key->verify(encode_entry(entry), *signature).ok());

    auto const changed = [&](auto const& change) {
        Entry other = entry;
        change(other);
        return encode_entry(other);
    };
    for (std::string const& other :
         {changed([](Entry& e) { e.key.body.high ^= 1; }), changed([](Entry& e) { e.key.body.low ^= 1; }),
          changed([](Entry& e) { e.key.compiler.high ^= 1; }), changed([](Entry& e) { e.key.compiler.low ^= 1; }),
          changed([](Entry& e) { e.is_ptx = !e.is_ptx; }), changed([](Entry& e) { e.metadata[0] ^= 1; }),
          changed([](Entry& e) { e.metadata += ' '; }), changed([](Entry& e) { e.image[0] ^= 1; }),
          changed([](Entry& e) { e.image += '\0'; }),
          changed([](Entry& e) {  // the same bytes in a row, divided otherwise
              e.image = e.metadata.back() + e.image;
              e.metadata.pop_back();
          })})
        CHECK(key->verify(other, *signature).code() == XQAJIT_CACHE_CORRUPT);

    std::string wrong = *signature;
    for (std::size_t i = 0; i < wrong.size(); ++i) {
        wrong[i] ^= 1;
        CHECK(key->verify(encode_entry(entry), wrong).code() == XQAJIT_CACHE_CORRUPT);
        wrong[i] ^= 1;
    }
    for (std::string const& other : {std::string(), signature->substr(1), *signature + '\0', std::string(kSignatureBytes, '\0')})
        CHECK(key->verify(encode_entry(entry), other).code() == XQAJIT_CACHE_CORRUPT);

    KeyFile const other_file(std::string(31, 'k') + 'j');
    Status const other = SigningKey::read(other_file.path)->verify(encode_entry(entry), *signature);
    CHECK(other.code() == XQAJIT_CACHE_CORRUPT);
    CHECK(other.message().find(other_file.path) != std::string::npos);
}

TEST_CASE("a key file is taken only where it is a secret of its owner's, of 32 to 4096 bytes", "[cache][signature]") {
    KeyFile const file;
    auto const refused = [&](xqajit_status code, std::string const& reason) {
        Result<SigningKey> const key = SigningKey::read(file.path);
        REQUIRE(!key.ok());
        INFO(key.status().message());
        CHECK(key.status().code() == code);
        CHECK(key.status().message().find(file.path) != std::string::npos);
        CHECK(key.status().message().find(reason) != std::string::npos);
    };
    for (std::size_t const size : {32, 33, 4096}) {
        file.write(std::string(size, 'k'), 0600);
        CHECK(SigningKey::read(file.path).ok());
    }
    for (std::size_t const size : {0, 31, 4097}) {
        file.write(std::string(size, 'k'), 0600);
        refused(XQAJIT_INVALID_ARGUMENT, std::to_string(size) + " bytes");
    }
    for (mode_t const mode : {0404, 0420, 0402, 0444, 0660, 0666}) {
        file.write(std::string(32, 'k'), mode);
        refused(XQAJIT_INVALID_ARGUMENT, "has mode 0");
    }
    file.write(std::string(32, 'k'), 0440);  // a secret that root shares with a group
    if (::geteuid() == 0)
        CHECK(SigningKey::read(file.path).ok());
    else
        refused(XQAJIT_INVALID_ARGUMENT, "may read it");

    std::filesystem::remove(file.path);
    refused(XQAJIT_UNAVAILABLE, "ENOENT");
    std::filesystem::create_directory(file.path);
    refused(XQAJIT_INVALID_ARGUMENT, "not a regular file");
    std::filesystem::remove(file.path);
    REQUIRE(::mkfifo(file.path.c_str(), 0600) == 0);
    refused(XQAJIT_INVALID_ARGUMENT, "not a regular file");
    std::filesystem::remove(file.path);
    write_raw(file.temp.path("target"), std::string(32, 'k'));
    ::chmod(file.temp.path("target").c_str(), 0400);
    std::filesystem::create_symlink(file.temp.path("target"), file.path);
    CHECK(SigningKey::read(file.path).ok());
}

TEST_CASE("another user's key file is refused", "[cache][signature]") {
    if (::geteuid() != 0) skip_test("only root can give a file away");
    KeyFile const file;
    REQUIRE(::chown(file.path.c_str(), 12345, 12345) == 0);
    Result<SigningKey> const key = SigningKey::read(file.path);
    REQUIRE(!key.ok());
    CHECK(key.status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(key.status().message().find("owned by uid 12345") != std::string::npos);
}

TEST_CASE("a build without signatures says so, and lets nothing pass", "[cache][signature]") {
    if (no_signatures().empty()) skip_test("this build has signatures");
    KeyFile const file;
    Result<SigningKey> const key = SigningKey::read(file.path);
    REQUIRE(key.ok());
    std::string const entry = encode_entry(sample_entry(1));
    CHECK(key->sign(entry).status().code() == XQAJIT_UNAVAILABLE);
    CHECK(key->verify(entry, std::string(kSignatureBytes, '\0')).code() == XQAJIT_UNAVAILABLE);
}
