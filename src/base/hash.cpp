#include "base/hash.h"

#include <charconv>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace xqajit {
namespace {

void append_length(std::string& stream, std::size_t length) {
    for (int shift = 0; shift < 64; shift += 8) stream.push_back(static_cast<char>(static_cast<std::uint64_t>(length) >> shift));
}

bool parse_half(std::string_view hex, std::uint64_t& half) {
    auto const [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), half, 16);
    return error == std::errc() && end == hex.data() + hex.size();
}

}  // namespace

std::string Digest::hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    text.reserve(32);
    for (std::uint64_t const half : {high, low})
        for (int shift = 60; shift >= 0; shift -= 4) text.push_back(kDigits[(half >> shift) & 15]);
    return text;
}

bool Digest::parse(std::string_view hex, Digest& digest) {
    Digest parsed;
    if (hex.size() != 32 || !parse_half(hex.substr(0, 16), parsed.high) || !parse_half(hex.substr(16), parsed.low)) return false;
    digest = parsed;
    return true;
}

Digest digest_of(std::span<std::byte const> bytes) {
    XXH128_hash_t const hash = XXH3_128bits(bytes.data(), bytes.size());
    return {hash.high64, hash.low64};
}

Digest digest_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text.data(), text.size()))); }

void TaggedHash::add(std::string_view tag, std::string_view value) {
    append_length(stream_, tag.size());
    stream_ += tag;
    append_length(stream_, value.size());
    stream_ += value;

    text_ += tag;
    text_ += '=';
    for (char const c : value) {
        if (c == '\n')
            text_ += "\\n";
        else
            text_ += c;
    }
    text_ += '\n';
}

Digest TaggedHash::digest() const { return digest_of(std::string_view(stream_)); }

}  // namespace xqajit
