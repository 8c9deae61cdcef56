// What a remote keeps under a key: an entry and its signature. See FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/entry.h"
#include "cache/signature.h"

namespace xqajit::cache {

inline constexpr std::uint32_t kRemoteVersion = 1;
inline constexpr std::uint64_t kMaxRemoteBytes = kMaxEntryBytes + 8 + 4 + 4 + kSignatureBytes;

// Where it lies below the remote's URL: 64 hex digits, body and compiler.
std::string remote_name(CacheKey const& key);

// entry: as encode_entry() writes it. signature: SigningKey::sign() of it, or "".
std::string encode_remote(std::string_view entry, std::string_view signature);

// The entry that a remote gave for a key. Nothing of it is looked into before its signature is found right. CACHE_CORRUPT names the first
// check that failed. key: null where no key file is set. Without a signature it is taken only if allow_unsigned; one that the key contradicts never
// is. UNAVAILABLE: signatures cannot be checked here.
Result<Entry> admit_remote(std::string_view bytes, CacheKey const& expected, SigningKey const* key, bool allow_unsigned);

}  // namespace xqajit::cache
