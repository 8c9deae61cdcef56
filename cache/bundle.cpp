#include "cache/bundle.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/bytes.h"
#include "cache/compression.h"
#include "cache/signature.h"

namespace xqajit::cache {
namespace {

constexpr std::string_view kMagic{"\xF1XQB\r\n\x1A\n", 8};
constexpr std::uint32_t kFlagZstd = 1;
constexpr std::uint32_t kRecordFlagPtx = 1;
constexpr std::size_t kHeadBytes = 8 + 4 + 4 + 8 + 4 + 8 + 8;  // without its checksum
constexpr std::size_t kDigestBytes = 16;
constexpr std::size_t kLeastRecordBytes = 16 + 16 + 4 + 4 + 8 + 8 + kDigestBytes + 4;

bool key_less(BundleRecord const& record, CacheKey const& key) { return record.key < key; }

}  // namespace

struct Bundle::Head {
    std::uint64_t flags = 0;
    std::uint64_t length = 0;
    std::uint64_t entries = 0;
    std::uint64_t manifest_bytes = 0;
    std::uint64_t packed_manifest_bytes = 0;
    Digest checksum;
    std::string bytes;  // before the checksum
};

Result<std::shared_ptr<Bundle const>> Bundle::open(UniqueFd file, std::string const& name) {
    std::shared_ptr<Bundle> bundle(new Bundle);
    bundle->name_ = name;
    bundle->file_ = std::move(file);
    struct stat facts {};
    if (::fstat(bundle->file_.get(), &facts) != 0) return unavailable(fmt::format("bundle {}: {}", name, errno_text(errno)));
    if (!S_ISREG(facts.st_mode)) return bundle->corrupt("is not a regular file");
    bundle->bytes_ = static_cast<std::uint64_t>(facts.st_size);
    return opened(std::move(bundle));
}

Result<std::shared_ptr<Bundle const>> Bundle::view(std::string_view bytes, std::string const& name) {
    std::shared_ptr<Bundle> bundle(new Bundle);
    bundle->name_ = name;
    bundle->memory_ = bytes;
    bundle->bytes_ = bytes.size();
    return opened(std::move(bundle));
}

Result<std::shared_ptr<Bundle const>> Bundle::opened(std::shared_ptr<Bundle> bundle) {
    Head head;
    XQAJIT_RETURN_IF_ERROR(bundle->read_head(head));
    XQAJIT_RETURN_IF_ERROR(bundle->read_manifest(head));
    return std::shared_ptr<Bundle const>(std::move(bundle));
}

Status Bundle::corrupt(std::string const& text) const { return {XQAJIT_CACHE_CORRUPT, fmt::format("bundle {}: {}", name_, text)}; }

Status Bundle::read_head(Head& head) const {
    if (bytes_ > kMaxBundleBytes) return corrupt(fmt::format("length is {} bytes: accepted are up to {}", bytes_, kMaxBundleBytes));
    if (bytes_ < kHeadBytes + kDigestBytes)
        return corrupt(fmt::format("length is {} bytes: the smallest bundle has {}", bytes_, kHeadBytes + kDigestBytes));
    Result<std::string> bytes = read_bytes(0, kHeadBytes + kDigestBytes);
    if (!bytes.ok()) return bytes.status();
    ByteReader in(*bytes);
    std::string_view magic;
    std::uint64_t version = 0;
    in.raw(kMagic.size(), magic);
    in.integer(4, version);
    in.integer(4, head.flags);
    in.integer(8, head.length);
    in.integer(4, head.entries);
    in.integer(8, head.manifest_bytes);
    in.integer(8, head.packed_manifest_bytes);
    in.digest(head.checksum);
    if (magic != kMagic) return corrupt("magic is not that of a bundle");
    if (version != kBundleVersion) return corrupt(fmt::format("version is {}: this library reads {}", version, kBundleVersion));
    if (head.length != bytes_) return corrupt(fmt::format("length is {} bytes: its head says {}", bytes_, head.length));
    if (head.entries > kMaxBundleEntries)
        return corrupt(fmt::format("number of entries is {}: accepted are 0..{}", head.entries, kMaxBundleEntries));
    if (head.manifest_bytes > kMaxManifestBytes || head.manifest_bytes < head.entries * kLeastRecordBytes)
        return corrupt(fmt::format("length of the manifest is {}: accepted for {} entries are {}..{}", head.manifest_bytes,
                                   head.entries, head.entries * kLeastRecordBytes, kMaxManifestBytes));
    if (head.packed_manifest_bytes > bytes_ - kHeadBytes - kDigestBytes)
        return corrupt(fmt::format("length of the packed manifest is {}: it does not fit a bundle of {} bytes",
                                   head.packed_manifest_bytes, bytes_));
    bytes->resize(kHeadBytes);
    head.bytes = std::move(*bytes);
    return {};
}

Status Bundle::read_manifest(Head const& head) {
    Result<std::string> packed = read_bytes(kHeadBytes + kDigestBytes, head.packed_manifest_bytes);
    if (!packed.ok()) return packed.status();
    if (digest_of(head.bytes + *packed) != head.checksum) return corrupt("checksum of the manifest does not match");
    if ((head.flags & ~std::uint64_t{kFlagZstd}) != 0)
        return corrupt(fmt::format("flags are {:#x}: version {} knows {:#x}", head.flags, kBundleVersion, kFlagZstd));
    is_compressed_ = (head.flags & kFlagZstd) != 0;
    Result<std::string> const manifest = unpacked(std::move(*packed), head.manifest_bytes);
    if (!manifest.ok())
        return {manifest.status().code(), fmt::format("bundle {}: manifest: {}", name_, manifest.status().message())};
    return parse(*manifest, head);
}

Status Bundle::parse(std::string_view manifest, Head const& head) {
    ByteReader in(manifest);
    std::uint64_t offset = kHeadBytes + kDigestBytes + head.packed_manifest_bytes;
    std::uint64_t image_bytes = 0;
    for (std::uint64_t i = 0; i < head.entries; ++i) {
        auto const bad = [&](std::string const& text) { return corrupt(fmt::format("entry {}: {}", i, text)); };
        BundleRecord record;
        std::uint64_t flags = 0;
        std::uint64_t metadata_bytes = 0;
        std::uint64_t signature_bytes = 0;
        std::string_view metadata;
        std::string_view signature;
        if (!in.digest(record.key.body) || !in.digest(record.key.compiler) || !in.integer(4, flags) ||
            !in.integer(4, metadata_bytes))
            return bad("the manifest ends within it");
        if (metadata_bytes > kMaxMetadataBytes)
            return bad(fmt::format("length of the metadata is {}: accepted are 0..{}", metadata_bytes, kMaxMetadataBytes));
        if (!in.raw(metadata_bytes, metadata) || !in.integer(8, record.image_bytes) || !in.integer(8, record.packed_bytes) ||
            !in.digest(record.checksum) || !in.integer(4, signature_bytes))
            return bad("the manifest ends within it");
        if (signature_bytes != 0 && signature_bytes != kSignatureBytes)
            return bad(fmt::format("length of the signature is {}: accepted are 0 and {}", signature_bytes, kSignatureBytes));
        if (!in.raw(signature_bytes, signature)) return bad("the manifest ends within it");
        if ((flags & ~std::uint64_t{kRecordFlagPtx}) != 0)
            return bad(fmt::format("flags are {:#x}: version {} knows {:#x}", flags, kBundleVersion, kRecordFlagPtx));
        if (record.image_bytes == 0 || record.image_bytes > kMaxEntryBytes)
            return bad(fmt::format("length of the image is {}: accepted are 1..{}", record.image_bytes, kMaxEntryBytes));
        if (record.packed_bytes > bytes_ - offset)
            return bad(fmt::format("length of the packed image is {}: {} bytes are left", record.packed_bytes, bytes_ - offset));
        image_bytes += record.image_bytes;
        if (image_bytes > kMaxBundleBytes) return bad(fmt::format("the images have more than {} bytes together", kMaxBundleBytes));
        if (!records_.empty() && !(records_.back().key < record.key)) return bad("its key is not behind that of the one before it");
        record.is_ptx = (flags & kRecordFlagPtx) != 0;
        record.metadata = metadata;
        record.signature = signature;
        record.offset = offset;
        offset += record.packed_bytes;
        records_.push_back(std::move(record));
    }
    if (in.left() != 0) return corrupt(fmt::format("{} bytes are behind the last entry of the manifest", in.left()));
    if (offset != bytes_) return corrupt(fmt::format("{} bytes are behind the last image", bytes_ - offset));
    return {};
}

BundleRecord const* Bundle::find(CacheKey const& key) const {
    auto const at = std::lower_bound(records_.begin(), records_.end(), key, key_less);
    return at != records_.end() && at->key == key ? &*at : nullptr;
}

std::span<BundleRecord const> Bundle::of_body(Digest const& body) const {
    auto const first = std::lower_bound(records_.begin(), records_.end(), CacheKey{body, {}}, key_less);
    auto const last = std::find_if(first, records_.end(), [&](BundleRecord const& record) { return record.key.body != body; });
    return {first, last};
}

Result<Entry> Bundle::read(BundleRecord const& record) const {
    auto const failed = [&](Status const& status) {
        return Status(status.code(), fmt::format("bundle {}: entry {}: {}", name_, record.key.body.hex(), status.message()));
    };
    Result<std::string> packed = read_bytes(record.offset, record.packed_bytes);
    if (!packed.ok()) return packed.status();
    if (digest_of(*packed) != record.checksum) return failed({XQAJIT_CACHE_CORRUPT, "checksum does not match"});
    Result<std::string> image = unpacked(std::move(*packed), record.image_bytes);
    if (!image.ok()) return failed(image.status());
    Entry entry{record.key, record.metadata, record.is_ptx, std::move(*image)};
    if (Status const status = check_limits(entry); !status.ok()) return failed({XQAJIT_CACHE_CORRUPT, status.message()});
    return entry;
}

Result<std::string> Bundle::read_bytes(std::uint64_t offset, std::uint64_t size) const {
    if (!file_.valid()) return std::string(memory_.substr(offset, size));
    std::string bytes(size, '\0');
    for (std::size_t filled = 0; filled < bytes.size();) {
        ssize_t const count =
            ::pread(file_.get(), bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(offset + filled));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return unavailable(fmt::format("bundle {}: {}", name_, errno_text(errno)));
        if (count == 0) return corrupt(fmt::format("has lost bytes since it was opened: {} are missing", size - filled));
        filled += static_cast<std::size_t>(count);
    }
    return bytes;
}

Result<std::string> Bundle::unpacked(std::string packed, std::uint64_t size) const {
    if (is_compressed_) return decompress(packed, size);
    if (packed.size() == size) return packed;
    return Status(XQAJIT_CACHE_CORRUPT, fmt::format("{} bytes in the place of {}", packed.size(), size));
}

Status BundleWriter::add(Entry const& entry, std::string const& signature) {
    XQAJIT_RETURN_IF_ERROR(check_limits(entry));
    if (entries_ == kMaxBundleEntries)
        return invalid_argument(fmt::format("bundle: at most {} entries are accepted", kMaxBundleEntries));
    std::uint64_t const record_bytes = kLeastRecordBytes + entry.metadata.size() + signature.size();
    if (manifest_.size() + record_bytes > kMaxManifestBytes)
        return invalid_argument(fmt::format("bundle: the manifest passes {} bytes", kMaxManifestBytes));
    if (image_bytes_ + entry.image.size() > kMaxBundleBytes)
        return invalid_argument(fmt::format("bundle: the images pass {} bytes together", kMaxBundleBytes));
    Result<std::string> const packed = has_compression() ? compress(entry.image) : Result<std::string>(entry.image);
    if (!packed.ok()) return packed.status();
    ByteWriter out(record_bytes);
    out.digest(entry.key.body);
    out.digest(entry.key.compiler);
    out.integer(entry.is_ptx ? kRecordFlagPtx : 0, 4);
    out.integer(entry.metadata.size(), 4);
    out.raw(entry.metadata);
    out.integer(entry.image.size(), 8);
    out.integer(packed->size(), 8);
    out.digest(digest_of(*packed));
    out.integer(signature.size(), 4);
    out.raw(signature);
    manifest_ += out.written();
    images_ += *packed;
    image_bytes_ += entry.image.size();
    ++entries_;
    return {};
}

Result<std::string> BundleWriter::finish() {
    Result<std::string> const manifest = has_compression() ? compress(manifest_) : Result<std::string>(manifest_);
    if (!manifest.ok()) return manifest.status();
    std::uint64_t const length = kHeadBytes + kDigestBytes + manifest->size() + images_.size();
    if (length > kMaxBundleBytes)
        return invalid_argument(fmt::format("bundle: length is {} bytes: accepted are up to {}", length, kMaxBundleBytes));
    ByteWriter out(length);
    out.raw(kMagic);
    out.integer(kBundleVersion, 4);
    out.integer(has_compression() ? kFlagZstd : 0, 4);
    out.integer(length, 8);
    out.integer(entries_, 4);
    out.integer(manifest_.size(), 8);
    out.integer(manifest->size(), 8);
    out.digest(digest_of(std::string(out.written()) + *manifest));
    out.raw(*manifest);
    out.raw(images_);
    *this = {};
    return out.take();
}

}  // namespace xqajit::cache
