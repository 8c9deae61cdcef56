#include "unit/cache/bundle_fixture.h"

#include <algorithm>
#include <stdexcept>

#include "cache/bytes.h"

namespace xqajit::cache::test {

std::vector<Entry> sample_entries(std::vector<int> const& numbers) {
    std::vector<Entry> entries;
    for (int const number : numbers) entries.push_back(sample_entry(number));
    std::sort(entries.begin(), entries.end(), [](Entry const& a, Entry const& b) { return a.key < b.key; });
    return entries;
}

std::string bundle_of(std::vector<Entry> const& entries, std::string const& signature) {
    BundleWriter writer;
    for (Entry const& entry : entries)
        if (Status const status = writer.add(entry, signature); !status.ok()) throw std::runtime_error(status.message());
    Result<std::string> bytes = writer.finish();
    if (!bytes.ok()) throw std::runtime_error(bytes.status().message());
    return std::move(bytes).value();
}

std::string forge(Forged const& forged) {
    ByteWriter manifest;
    std::string images;
    for (ForgedRecord const& record : forged.records) {
        manifest.digest(record.entry.key.body);
        manifest.digest(record.entry.key.compiler);
        manifest.integer(record.flags, 4);
        manifest.integer(record.metadata_bytes, 4);
        manifest.raw(record.entry.metadata);
        manifest.integer(record.image_bytes, 8);
        manifest.integer(record.packed_bytes, 8);
        manifest.digest(digest_of(record.packed));
        manifest.integer(record.signature_bytes, 4);
        manifest.raw(record.signature);
        images += record.packed;
    }
    manifest.raw(forged.manifest_tail);
    auto const plus = [](std::uint64_t value, std::int64_t more) { return value + static_cast<std::uint64_t>(more); };
    std::string const listed(manifest.written());
    ByteWriter out;
    out.raw(forged.magic);
    out.integer(forged.version, 4);
    out.integer(forged.flags, 4);
    out.integer(plus(60 + listed.size() + images.size() + forged.tail.size(), forged.more_length), 8);
    out.integer(plus(forged.records.size(), forged.more_entries), 4);
    out.integer(plus(listed.size(), forged.more_manifest), 8);
    out.integer(plus(listed.size(), forged.more_packed_manifest), 8);
    out.digest(digest_of(std::string(out.written()) + listed));
    out.raw(listed);
    out.raw(images);
    out.raw(forged.tail);
    return out.take();
}

}  // namespace xqajit::cache::test
