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

struct Entry {
    CacheKey key;
    std::string metadata; // JSON object
    bool is_ptx = false;
    std::string image;
};

std::string encode_entry(Entry const& entry);
// CACHE_CORRUPT names the first check that failed: length, magic, version, checksum, key.
Result<Entry> decode_entry(std::string_view bytes);

} // namespace xqajit::cache
