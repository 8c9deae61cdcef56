// zstd, where the build has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace xqajit::cache {

bool has_compression();

// One frame that says how long its content is. INTERNAL if zstd fails. Only where has_compression().
Result<std::string> compress(std::string_view bytes);

// bytes must be one frame with a content of exactly `size` bytes, which is what is allocated: CACHE_CORRUPT. UNAVAILABLE without zstd.
Result<std::string> decompress(std::string_view bytes, std::uint64_t size);

}  // namespace xqajit::cache
