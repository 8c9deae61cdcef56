// One cache entry as bytes: see FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace xqajit::cache {

inline constexpr std::uint32_t kEntryVersion = 1;
inline constexpr std::uint64_t kMaxEntryBytes = 64u << 20;
inline constexpr std::uint64_t kMaxMetadataBytes = 1u << 20;

struct Entry {
    CacheKey key;
    std::string metadata;  // JSON object
    bool is_ptx = false;
    std::string image;  // never empty in a file
};

// INVALID_ARGUMENT if the entry breaks a limit of FORMAT.md, so that nothing is written that decode_entry() refuses.
Status check_limits(Entry const& entry);

// The entry keeps the limits: check_limits().
std::string encode_entry(Entry const& entry);
// CACHE_CORRUPT names the first check that failed: length, magic, version, signature, image, checksum, flags.
// What it accepts is exactly what encode_entry() writes. Never reads past bytes; allocates no more than bytes holds.
Result<Entry> decode_entry(std::string_view bytes);
// And the key inside is the expected one.
Result<Entry> decode_entry(std::string_view bytes, CacheKey const& expected);

}  // namespace xqajit::cache
