// The names in a cache directory: see FORMAT.md.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace xqajit::cache {

inline constexpr std::string_view kSuffix = ".xqa";
inline constexpr char kQuarantine[] = "quarantine";
inline constexpr std::time_t kLeftoverSeconds = 3600;  // a temporary file that is older is a killed writer's

inline std::string file_name(CacheKey const& key) { return key.compiler.hex() + std::string(kSuffix); }

inline std::string prefix_of(Digest const& body) { return body.hex().substr(0, 2); }

inline bool is_prefix_name(std::string_view name) {
    return name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Only the spelling that file_name() gives: temporary files and strangers are not entries.
inline bool parse_digest_name(std::string_view name, Digest& digest) { return Digest::parse(name, digest) && digest.hex() == name; }

inline bool parse_file_name(std::string_view name, Digest& compiler) {
    return name.ends_with(kSuffix) && parse_digest_name(name.substr(0, name.size() - kSuffix.size()), compiler);
}

}  // namespace xqajit::cache
