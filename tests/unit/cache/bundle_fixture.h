// Bundles for tests: of the library's writer, and forged ones that its writer would not make.
#pragma once

#include <string>
#include <vector>

#include "cache/bundle.h"
#include "unit/cache/fixture.h"

namespace xqajit::cache::test {

// Entries of these numbers, of 1000 bytes each; in the order of their keys.
std::vector<Entry> sample_entries(std::vector<int> const& numbers);
std::string bundle_of(std::vector<Entry> const& entries, std::string const& signature = {});

// As FORMAT.md has it, not compressed, its checksum right whatever the rest says.
struct ForgedRecord {
    Entry entry = sample_entry(1, 40);
    std::string packed = entry.image;
    std::uint32_t flags = entry.is_ptx ? 1 : 0;
    std::uint64_t metadata_bytes = entry.metadata.size();
    std::uint64_t image_bytes = entry.image.size();
    std::uint64_t packed_bytes = packed.size();
    std::uint64_t signature_bytes = 0;
    std::string signature = {};
};
struct Forged {
    std::string magic{"\xF1XQB\r\n\x1A\n", 8};
    std::uint32_t version = 1;
    std::uint32_t flags = 0;
    std::int64_t more_length = 0;
    std::int64_t more_entries = 0;
    std::int64_t more_manifest = 0;
    std::int64_t more_packed_manifest = 0;
    std::string manifest_tail = {};
    std::string tail = {};
    std::vector<ForgedRecord> records = std::vector<ForgedRecord>(1);
};
std::string forge(Forged const& forged);

}  // namespace xqajit::cache::test
