// Sizes and ages as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xqajit {

// What each accepts, as an error quotes it. Decimal without sign or leading zeros; no value for anything else, 0 and 2^64 and more included.
inline constexpr char kAcceptedSizes[] = "a size such as 512M: 1 or more bytes, or that many K, M, G or T (1024 each)";
std::optional<std::uint64_t> parse_size(std::string_view text);  // bytes
inline constexpr char kAcceptedAges[] = "an age such as 30d: 1 or more s, m, h or d (seconds, minutes, hours, days)";
std::optional<std::uint64_t> parse_age(std::string_view text);  // seconds

}  // namespace xqajit
