// The two fields of an entry's metadata that the cache itself looks at. Everything else in it is for people and tools.
#pragma once

#include <array>
#include <compare>
#include <string>
#include <string_view>

namespace xqajit::cache {

// How good a choice an entry is where any compiler will do: the greater, the better.
struct CompilerRank {
    std::array<unsigned, 3> nvrtc_version{};  // "nvrtc_version": "13.0" or "13.0.88"; zeros if missing or malformed
    std::string created;                      // "created": ISO-8601 UTC without its Z, so that text order is time order
    auto operator<=>(CompilerRank const&) const = default;
};

// Anything that is not a JSON object with these fields ranks lowest; never fails.
CompilerRank compiler_rank(std::string_view metadata);

}  // namespace xqajit::cache
