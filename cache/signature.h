// HMAC-SHA-256 of a cache entry under the operator's key file: what lets in code that comes from elsewhere. The entry's checksum finds
// damage, the signature says who made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace xqajit::cache {

inline constexpr std::size_t kSignatureBytes = 32;
inline constexpr std::uint64_t kMinKeyBytes = 32;
inline constexpr std::uint64_t kMaxKeyBytes = 4096;

// The code itself; any key. UNAVAILABLE: this build has no signatures, or libcrypto is not found here; the message says which.
Result<std::string> hmac_sha256(std::string_view key, std::string_view bytes);

// Thread-safe.
class SigningKey {
public:
    // All bytes of the file are the key, a newline at its end too. UNAVAILABLE: it cannot be opened or read. INVALID_ARGUMENT: it is no
    // regular file, has fewer than kMinKeyBytes or more than kMaxKeyBytes, belongs to somebody else than the effective user or root, may
    // be written by others or read by everybody; or, unless it is root's, read by its group. All is judged on the open descriptor.
    static Result<SigningKey> read(std::string const& path);

    // entry: as encode_entry() writes it, so that the version, flags, key, metadata and image are covered, each with its length.
    // Gives kSignatureBytes, or fails as hmac_sha256() does.
    Result<std::string> sign(std::string_view entry) const;
    // CACHE_CORRUPT: it is not sign()'s. UNAVAILABLE as of hmac_sha256(). Takes as long whichever byte differs.
    Status verify(std::string_view entry, std::string_view signature) const;

    std::string const& path() const { return path_; }

private:
    SigningKey(std::string path, std::string key) : path_(std::move(path)), key_(std::move(key)) {}

    std::string path_;
    std::string key_;
};

}  // namespace xqajit::cache
