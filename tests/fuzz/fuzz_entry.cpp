// decode_entry() on any bytes: no crash, no overread, and what it accepts is exactly what encode_entry() writes.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cache/entry.h"
#include "cache/metadata.h"

using namespace xqajit;
using namespace xqajit::cache;

namespace {

void check(std::string const& bytes) {
    Result<Entry> const entry = decode_entry(bytes);
    if (!entry.ok()) {
        if (entry.status().code() != XQAJIT_CACHE_CORRUPT || entry.status().message().empty()) std::abort();
        return;
    }
    if (encode_entry(*entry) != bytes || !check_limits(*entry).ok()) std::abort();
    (void)compiler_rank(entry->metadata);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string bytes(reinterpret_cast<char const*>(data), size);
    check(bytes);
    // No fuzzer finds a checksum: the rest of the decoder is behind it.
    Digest const checksum = digest_of(bytes);
    for (std::uint64_t const half : {checksum.low, checksum.high})
        for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(half >> (8 * i)));
    check(bytes);
    return 0;
}
