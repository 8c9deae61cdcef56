#include "cache/entry.h"

#include <fmt/format.h>

#include "cache/bytes.h"

namespace xqajit::cache {
namespace {

// The first bytes tell a text-mode or 7-bit copy from the original: a byte over 127, CR LF, and LF.
constexpr std::string_view kMagic{"\xF1XQA\r\n\x1A\n", 8};
constexpr std::uint32_t kFlagPtx = 1;
constexpr std::size_t kPrefixBytes = 8 + 4;                       // magic, version: the same in every version
constexpr std::size_t kHeaderBytes = kPrefixBytes + 4 + 16 + 16;  // and flags, body, compiler
constexpr std::size_t kTrailerBytes = 16;
constexpr std::size_t kFramingBytes = kHeaderBytes + 4 + 4 + 8 + kTrailerBytes;  // of an entry without metadata and image

Status corrupt(std::string text) { return {XQAJIT_CACHE_CORRUPT, "cache entry: " + std::move(text)}; }

std::string key_text(CacheKey const& key) { return key.body.hex() + "/" + key.compiler.hex(); }

}  // namespace

Status check_limits(Entry const& entry) {
    if (entry.metadata.size() > kMaxMetadataBytes)
        return invalid_argument(
            fmt::format("cache entry: metadata is {} bytes: accepted are 0..{}", entry.metadata.size(), kMaxMetadataBytes));
    std::uint64_t const room = kMaxEntryBytes - kFramingBytes - entry.metadata.size();
    if (entry.image.empty() || entry.image.size() > room)
        return invalid_argument(fmt::format("cache entry: image is {} bytes: accepted are 1..{}", entry.image.size(), room));
    return {};
}

std::string encode_entry(Entry const& entry) {
    ByteWriter out(kFramingBytes + entry.metadata.size() + entry.image.size());
    out.raw(kMagic);
    out.integer(kEntryVersion, 4);
    out.integer(entry.is_ptx ? kFlagPtx : 0, 4);
    out.digest(entry.key.body);
    out.digest(entry.key.compiler);
    out.integer(entry.metadata.size(), 4);
    out.raw(entry.metadata);
    out.integer(0, 4);  // signature: reserved
    out.integer(entry.image.size(), 8);
    out.raw(entry.image);
    out.digest(digest_of(out.written()));
    return out.take();
}

Result<Entry> decode_entry(std::string_view bytes) {
    if (bytes.size() > kMaxEntryBytes)
        return corrupt(fmt::format("length is {} bytes: accepted are up to {}", bytes.size(), kMaxEntryBytes));
    ByteReader in(bytes);
    std::string_view magic;
    std::uint64_t version = 0;
    if (!in.raw(kMagic.size(), magic) || !in.integer(4, version))
        return corrupt(fmt::format("length is {} bytes: the smallest entry has {}", bytes.size(), kFramingBytes + 1));
    if (magic != kMagic) return corrupt("magic is not that of a cache entry");
    if (version != kEntryVersion) return corrupt(fmt::format("version is {}: this library reads {}", version, kEntryVersion));
    if (bytes.size() <= kFramingBytes)
        return corrupt(fmt::format("length is {} bytes: the smallest entry has {}", bytes.size(), kFramingBytes + 1));

    std::uint64_t flags = 0;
    std::uint64_t metadata_bytes = 0;
    std::uint64_t signature_bytes = 0;
    std::uint64_t image_bytes = 0;
    std::string_view metadata;
    std::string_view image;
    Entry entry;
    in.integer(4, flags);
    in.digest(entry.key.body);
    in.digest(entry.key.compiler);
    in.integer(4, metadata_bytes);
    if (metadata_bytes > kMaxMetadataBytes)
        return corrupt(fmt::format("length of the metadata is {}: accepted are 0..{}", metadata_bytes, kMaxMetadataBytes));
    if (!in.raw(metadata_bytes, metadata) || !in.integer(4, signature_bytes))
        return corrupt(
            fmt::format("length of the metadata is {}: it does not fit an entry of {} bytes", metadata_bytes, bytes.size()));
    if (signature_bytes != 0) return corrupt(fmt::format("signature is {} bytes: version {} has 0", signature_bytes, version));
    if (!in.integer(8, image_bytes) || in.left() < kTrailerBytes || image_bytes != in.left() - kTrailerBytes)
        return corrupt(fmt::format("length of the image is {}: it does not fit an entry of {} bytes", image_bytes, bytes.size()));
    if (image_bytes == 0) return corrupt("image is empty");
    in.raw(image_bytes, image);

    Digest checksum;
    in.digest(checksum);
    if (checksum != digest_of(bytes.substr(0, bytes.size() - kTrailerBytes))) return corrupt("checksum does not match");
    // After the checksum: an intact entry with a flag that this version does not know is another thing than a flipped bit.
    if ((flags & ~std::uint64_t{kFlagPtx}) != 0)
        return corrupt(fmt::format("flags are {:#x}: version {} knows {:#x}", flags, version, kFlagPtx));

    entry.is_ptx = (flags & kFlagPtx) != 0;
    entry.metadata = metadata;
    entry.image = image;
    return entry;
}

Result<Entry> decode_entry(std::string_view bytes, CacheKey const& expected) {
    Result<Entry> entry = decode_entry(bytes);
    if (entry.ok() && entry->key != expected)
        return corrupt(fmt::format("key is {}: expected {}", key_text(entry->key), key_text(expected)));
    return entry;
}

}  // namespace xqajit::cache
