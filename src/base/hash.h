// XXH3-128 over tagged fields, and the digests made of it.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xqajit {

struct Digest {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    auto operator<=>(Digest const&) const = default;
    std::string hex() const;                                  // 32 lower-case digits
    static bool parse(std::string_view hex, Digest& digest);  // false unless exactly 32 hex digits
};

Digest digest_of(std::span<std::byte const> bytes);
Digest digest_of(std::string_view text);

// Each field is hashed as (tag length, tag, value length, value), so that no two field lists share a byte stream.
class TaggedHash {
public:
    void add(std::string_view tag, std::string_view value);
    Digest digest() const;                             // of the fields so far
    std::string const& text() const { return text_; }  // the fields as "tag=value" lines: what a cache miss is diffed by

private:
    std::string stream_;
    std::string text_;
};

// Names a cache entry: the entry lives at <body>/<compiler>.
struct CacheKey {
    Digest body;      // everything that shapes the image but the compiler
    Digest compiler;  // the compiler library's identity
    auto operator<=>(CacheKey const&) const = default;
};

}  // namespace xqajit
