// Many entries in one file, to ship: see FORMAT.md. The manifest is on top, so that a bundle is listed, and one entry of it is read,
// without the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "cache/entry.h"

namespace xqajit::cache {

inline constexpr std::uint32_t kBundleVersion = 1;
inline constexpr std::uint64_t kMaxBundleBytes = std::uint64_t{4} << 30;  // the file, and its images unpacked
inline constexpr std::uint64_t kMaxBundleEntries = 65536;
inline constexpr std::uint64_t kMaxManifestBytes = 64u << 20;

struct BundleRecord {
    CacheKey key;
    bool is_ptx = false;
    std::string metadata;  // JSON
    std::uint64_t image_bytes = 0;
    std::uint64_t packed_bytes = 0;
    std::uint64_t offset = 0;  // of the packed image in the file
    Digest checksum;           // of the packed image
    std::string signature;     // SigningKey::sign() of the entry; empty if it is not signed
};

// Immutable and thread-safe.
class Bundle {
public:
    // Reads and checks head and manifest, and no image. name: what errors call it. CACHE_CORRUPT names the first check that failed;
    // UNAVAILABLE: it cannot be read, or is compressed and this build has no zstd. The file stays open: one that is renamed over it
    // changes nothing here.
    static Result<std::shared_ptr<Bundle const>> open(UniqueFd file, std::string const& name);
    // In memory that outlives the bundle.
    static Result<std::shared_ptr<Bundle const>> view(std::string_view bytes, std::string const& name);

    std::string const& name() const { return name_; }
    std::uint64_t bytes() const { return bytes_; }
    bool is_compressed() const { return is_compressed_; }
    std::vector<BundleRecord> const& records() const { return records_; }  // by key, each once
    BundleRecord const* find(CacheKey const& key) const;                   // null: it has none
    std::span<BundleRecord const> of_body(Digest const& body) const;

    // The entry of one of its records, checked whole. CACHE_CORRUPT, or UNAVAILABLE if it cannot be read. Its signature is not judged.
    Result<Entry> read(BundleRecord const& record) const;

private:
    struct Head;
    Bundle() = default;
    static Result<std::shared_ptr<Bundle const>> opened(std::shared_ptr<Bundle> bundle);
    Status read_head(Head& head) const;
    Status read_manifest(Head const& head);
    Status parse(std::string_view manifest, Head const& head);
    Result<std::string> read_bytes(std::uint64_t offset, std::uint64_t size) const;
    Result<std::string> unpacked(std::string packed, std::uint64_t size) const;
    Status corrupt(std::string const& text) const;

    std::string name_;
    UniqueFd file_;  // not valid: memory_ has the bytes
    std::string_view memory_;
    std::uint64_t bytes_ = 0;
    bool is_compressed_ = false;
    std::vector<BundleRecord> records_;
};

class BundleWriter {
public:
    // Entries in the order of their keys, each key once. signature: as of BundleRecord. INVALID_ARGUMENT: a limit.
    Status add(Entry const& entry, std::string const& signature);
    std::size_t entries() const { return entries_; }
    Result<std::string> finish();  // the whole file; the writer is empty then

private:
    std::size_t entries_ = 0;
    std::uint64_t image_bytes_ = 0;
    std::string manifest_;
    std::string images_;
};

}  // namespace xqajit::cache
