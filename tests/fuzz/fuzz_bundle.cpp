// Bundle on any bytes: no crash, no overread, no more memory than the limits allow, and every entry that it gives keeps an entry's limits.
// The checksums are made right first: no fuzzer finds one.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cache/bundle.h"
#include "cache/bytes.h"
#include "cache/compression.h"

using namespace xqajit;
using namespace xqajit::cache;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void require_reason(Status const& status) {
    require(status.code() == XQAJIT_CACHE_CORRUPT || status.code() == XQAJIT_UNAVAILABLE);
    require(!status.message().empty());
}

void check(std::string_view bytes) {
    Result<std::shared_ptr<Bundle const>> const bundle = Bundle::view(bytes, "fuzzed");
    if (!bundle.ok()) return require_reason(bundle.status());
    std::uint64_t unpacked = 0;
    for (BundleRecord const& record : (*bundle)->records()) {
        require((*bundle)->find(record.key) == &record);
        require(!(*bundle)->of_body(record.key.body).empty());
        if ((unpacked += record.image_bytes) > 16 * kMaxMetadataBytes) break;  // what is asked for is allowed, and slow
        Result<Entry> const entry = (*bundle)->read(record);
        if (!entry.ok()) {
            require_reason(entry.status());
            continue;
        }
        require(check_limits(*entry).ok() && entry->key == record.key && entry->image.size() == record.image_bytes);
    }
}

constexpr std::size_t kHeadBytes = 44, kDigestBytes = 16;

std::string digest_bytes(std::string_view bytes) {
    ByteWriter out;
    out.digest(digest_of(bytes));
    return out.take();
}

// The length and the checksum of head and manifest as the bytes have them.
std::string sealed(std::string bytes) {
    if (bytes.size() < kHeadBytes + kDigestBytes) return bytes;
    ByteWriter length;
    length.integer(bytes.size(), 8);
    bytes.replace(16, 8, length.written());
    std::uint64_t packed = 0;
    ByteReader(std::string_view(bytes).substr(36)).integer(8, packed);
    std::string const manifest = bytes.substr(kHeadBytes + kDigestBytes, packed);
    bytes.replace(kHeadBytes, kDigestBytes, digest_bytes(bytes.substr(0, kHeadBytes) + manifest));
    return bytes;
}

// A bundle of one image, made of the bytes: they reach what unpacks.
std::string around(std::string const& image, bool is_compressed) {
    ByteWriter manifest;
    manifest.digest({1, 2});
    manifest.digest({3, 4});
    manifest.integer(0, 4);
    manifest.integer(2, 4);
    manifest.raw("{}");
    manifest.integer(image.empty() ? 1 : static_cast<unsigned char>(image[0]) * std::uint64_t{16} + 1, 8);
    manifest.integer(image.size(), 8);
    manifest.digest(digest_of(image));
    manifest.integer(0, 4);
    std::string listed(manifest.written());
    std::size_t const plain_bytes = listed.size();
    if (is_compressed) listed = compress(listed).value();
    ByteWriter out;
    out.raw({"\xF1XQB\r\n\x1A\n", 8});
    out.integer(kBundleVersion, 4);
    out.integer(is_compressed ? 1 : 0, 4);
    out.integer(0, 8);
    out.integer(1, 4);
    out.integer(plain_bytes, 8);
    out.integer(listed.size(), 8);
    out.digest({});
    out.raw(listed);
    out.raw(image);
    return sealed(out.take());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string const bytes(reinterpret_cast<char const*>(data), size);
    check(bytes);
    check(sealed(bytes));
    check(around(bytes, false));
    if (has_compression()) check(around(bytes, true));
    return 0;
}
