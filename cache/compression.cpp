#include "cache/compression.h"

#ifdef XQAJIT_HAS_ZSTD
#include <fmt/format.h>
#include <zstd.h>
#endif

namespace xqajit::cache {

#ifdef XQAJIT_HAS_ZSTD
namespace {

// Of the cubins of the bundled models: level 3 leaves 0.32 of them, 9 0.30, 19, in forty times the time, 0.27.
constexpr int kLevel = 9;

}  // namespace

bool has_compression() { return true; }

Result<std::string> compress(std::string_view bytes) {
    std::string packed(::ZSTD_compressBound(bytes.size()), '\0');
    std::size_t const size = ::ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
    if (::ZSTD_isError(size)) return Status(XQAJIT_INTERNAL, fmt::format("zstd: {}", ::ZSTD_getErrorName(size)));
    packed.resize(size);
    packed.shrink_to_fit();
    return packed;
}

Result<std::string> decompress(std::string_view bytes, std::uint64_t size) {
    auto const corrupt = [](std::string const& text) { return Status(XQAJIT_CACHE_CORRUPT, "zstd: " + text); };
    std::size_t const frame = ::ZSTD_findFrameCompressedSize(bytes.data(), bytes.size());
    if (::ZSTD_isError(frame)) return corrupt(::ZSTD_getErrorName(frame));
    if (frame != bytes.size()) return corrupt(fmt::format("the frame ends after {} of {} bytes", frame, bytes.size()));
    if (::ZSTD_getFrameContentSize(bytes.data(), bytes.size()) != size)
        return corrupt(fmt::format("the frame is not of {} bytes", size));
    std::string content(size, '\0');
    std::size_t const filled = ::ZSTD_decompress(content.data(), content.size(), bytes.data(), bytes.size());
    if (::ZSTD_isError(filled)) return corrupt(::ZSTD_getErrorName(filled));
    if (filled != size) return corrupt(fmt::format("the frame holds {} bytes in the place of {}", filled, size));
    return content;
}
#else
bool has_compression() { return false; }

Result<std::string> compress(std::string_view) { return Status(XQAJIT_INTERNAL, "this build has no zstd"); }

Result<std::string> decompress(std::string_view, std::uint64_t) {
    return unavailable(
        "it is compressed, and this build has no zstd: it was configured without libzstd, or with -DXQAJIT_ZSTD=OFF");
}
#endif

}  // namespace xqajit::cache
