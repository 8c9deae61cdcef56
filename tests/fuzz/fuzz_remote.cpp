// What a remote's server answers, as any bytes: no crash, no overread, nothing taken without its signature but by name, and what is taken is
// exactly what was put.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "cache/remote_object.h"

using namespace xqajit;
using namespace xqajit::cache;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

SigningKey const& signing_key() {
    static SigningKey const key = [] {
        char path[] = "/tmp/xqajit-fuzz-XXXXXX";
        int const file = ::mkstemp(path);  // mode 0600
        require(file >= 0 && ::write(file, std::string(32, 'k').data(), 32) == 32);
        ::close(file);
        Result<SigningKey> read = SigningKey::read(path);
        ::unlink(path);
        require(read.ok());
        return *read;
    }();
    return key;
}

bool has_signatures() {
    static bool const has = signing_key().sign("").ok();
    return has;
}

CacheKey const kKey{{1, 2}, {3, 4}};

Result<Entry> admit(std::string const& bytes, bool allow_unsigned, SigningKey const* key) {
    Result<Entry> entry = admit_remote(bytes, kKey, key, allow_unsigned);
    if (!entry.ok()) {
        require(entry.status().code() == XQAJIT_CACHE_CORRUPT && !entry.status().message().empty());
        return entry;
    }
    require(entry->key == kKey && check_limits(*entry).ok());
    std::string const encoded = encode_entry(*entry);
    require(bytes.ends_with(encoded) && (bytes.size() == 16 + encoded.size() || bytes.size() == 48 + encoded.size()));
    return entry;
}

void check(std::string const& bytes) {
    require(!admit(bytes, false, nullptr).ok());
    (void)admit(bytes, true, nullptr);
    if (!has_signatures()) return;
    (void)admit(bytes, true, &signing_key());
    if (admit(bytes, false, &signing_key()).ok()) require(bytes.size() > 48 && bytes[12] == 32);
}

std::string sealed(std::string bytes) {
    Digest const checksum = digest_of(bytes);
    for (std::uint64_t const half : {checksum.low, checksum.high})
        for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(half >> (8 * i)));
    return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string const bytes(reinterpret_cast<char const*>(data), size);
    check(bytes);
    // No fuzzer finds a checksum or a signature: both are made for the bytes, so that what is behind them is met.
    std::string const entry = sealed(bytes);
    check(encode_remote(entry, ""));
    if (!has_signatures()) return 0;
    std::string const signature = *signing_key().sign(entry);
    check(encode_remote(entry, signature));
    require(admit(encode_remote(entry, signature), false, &signing_key()).ok() == decode_entry(entry, kKey).ok());
    return 0;
}
