#include "cache/remote_object.h"

#include <fmt/format.h>

#include "cache/bytes.h"

namespace xqajit::cache {
namespace {

constexpr std::string_view kMagic{"\xF1XQR\r\n\x1A\n", 8};

Status corrupt(std::string text) { return {XQAJIT_CACHE_CORRUPT, "remote entry: " + std::move(text)}; }

}  // namespace

std::string remote_name(CacheKey const& key) { return key.body.hex() + key.compiler.hex(); }

std::string encode_remote(std::string_view entry, std::string_view signature) {
    ByteWriter out(kMagic.size() + 8 + signature.size() + entry.size());
    out.raw(kMagic);
    out.integer(kRemoteVersion, 4);
    out.integer(signature.size(), 4);
    out.raw(signature);
    out.raw(entry);
    return out.take();
}

Result<Entry> admit_remote(std::string_view bytes, CacheKey const& expected, SigningKey const* key, bool allow_unsigned) {
    if (bytes.size() > kMaxRemoteBytes)
        return corrupt(fmt::format("length is {} bytes: accepted are up to {}", bytes.size(), kMaxRemoteBytes));
    ByteReader in(bytes);
    std::string_view magic;
    std::string_view signature;
    std::uint64_t version = 0;
    std::uint64_t signature_bytes = 0;
    if (!in.raw(kMagic.size(), magic) || magic != kMagic) return corrupt("magic is not that of a remote entry");
    if (!in.integer(4, version) || version != kRemoteVersion)
        return corrupt(fmt::format("version is {}: this library reads {}", version, kRemoteVersion));
    if (!in.integer(4, signature_bytes) || (signature_bytes != 0 && signature_bytes != kSignatureBytes))
        return corrupt(fmt::format("length of the signature is {}: accepted are 0 and {}", signature_bytes, kSignatureBytes));
    if (!in.raw(signature_bytes, signature)) return corrupt("it ends within the signature");
    std::string_view entry;
    in.raw(in.left(), entry);

    if (signature.empty() && !allow_unsigned)
        return corrupt(
            "it is not signed: accepted are entries that are signed under XQAJIT_CACHE_KEY_FILE, or, with "
            "XQAJIT_REMOTE_ALLOW_UNSIGNED=1, any");
    if (key == nullptr && !allow_unsigned) return corrupt("its signature cannot be checked: XQAJIT_CACHE_KEY_FILE is not set");
    if (key != nullptr && !signature.empty()) XQAJIT_RETURN_IF_ERROR(key->verify(entry, signature));
    return decode_entry(entry, expected);
}

}  // namespace xqajit::cache
