// Bundles: made of the cache directory, taken into it, listed.
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "cache/bundle.h"
#include "cache/signature.h"
#include "service/documents.h"
#include "service/impl.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;
using cache::Bundle;
using cache::BundleRecord;
using cache::SigningKey;

constexpr mode_t kBundleMode = 0644;  // it is shipped: others read it, as far as the umask lets them

// Nothing where the setting names none.
Result<std::optional<SigningKey>> signing_key(Settings const& settings) {
    std::string const& path = settings.text(SettingId::kCacheKeyFile);
    if (path.empty()) return std::optional<SigningKey>();
    Result<SigningKey> key = SigningKey::read(path);
    if (!key.ok()) return Status(key.status().code(), "XQAJIT_CACHE_KEY_FILE: " + key.status().message());
    return std::optional(std::move(key).value());
}

// Whoever it belongs to: what is in it is judged by signature.
Result<std::shared_ptr<Bundle const>> open_bundle(std::string const& file) {
    UniqueFd opened = above_standard(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!opened.valid())
        return invalid_argument(fmt::format("file is '{}': {}: accepted is the path of a bundle", file, errno_text(errno)));
    return Bundle::open(std::move(opened), file);
}

Status write_bundle(std::string const& file, std::string const& bytes) {
    std::filesystem::path const path(file);
    if (!path.has_filename()) return invalid_argument(fmt::format("file is '{}': accepted is the path of a file", file));
    std::string const folder = path.has_parent_path() ? path.parent_path().string() : ".";
    UniqueFd const directory = above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid()) return unavailable(fmt::format("bundle {}: {}: {}", file, folder, errno_text(errno)));
    Status const status = write_file_atomic_at(directory.get(), path.filename().string(), bytes, kBundleMode);
    return status.ok() ? status : unavailable(fmt::format("bundle {}: {}", file, status.message()));
}

// What lets the bundle in, before a byte of an image is unpacked.
Status check_admitted(Bundle const& bundle, bool has_key, bool allow_unsigned) {
    if (allow_unsigned || bundle.records().empty()) return {};
    auto const refused = [&](std::string const& why) {
        return Status(XQAJIT_CACHE_CORRUPT,
                      fmt::format("bundle {}: {}: accepted are entries that are signed under XQAJIT_CACHE_KEY_FILE, "
                                  "or, with --allow-unsigned, any",
                                  bundle.name(), why));
    };
    for (BundleRecord const& record : bundle.records())
        if (record.signature.empty()) return refused(fmt::format("entry {} is not signed", record.key.body.hex()));
    return has_key ? Status() : refused("XQAJIT_CACHE_KEY_FILE is not set, so that its signatures cannot be checked");
}

}  // namespace

Result<Service::ExportReport> Service::cache_export(std::string const& file) {
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    Result<std::optional<SigningKey>> const key = signing_key(impl_->settings);
    if (!key.ok()) return key.status();
    cache::BundleWriter writer;
    Json failed = Json::array();
    std::uint64_t entry_bytes = 0;
    cache::Listing const listing = impl_->store->list();
    for (cache::ListedFolder const& folder : listing.unlisted) failed.push_back(with_state({{"path", folder.path}}, folder.status));
    for (cache::ListedEntry const& listed : listing.entries) {
        if (!listed.status.ok()) {
            failed.push_back(with_state({{"key", key_text(listed.key)}, {"path", listed.path}}, listed.status));
            continue;
        }
        std::optional<cache::Entry> const entry = impl_->store->peek(listed.key);
        if (!entry) continue;  // collected meanwhile
        Result<std::string> signature = *key ? (*key)->sign(cache::encode_entry(*entry)) : Result<std::string>(std::string());
        if (!signature.ok()) return signature.status();
        XQAJIT_RETURN_IF_ERROR(writer.add(*entry, *signature));
        entry_bytes += listed.bytes;
    }
    std::size_t const entries = writer.entries();
    Result<std::string> const bytes = writer.finish();
    if (!bytes.ok()) return bytes.status();
    XQAJIT_RETURN_IF_ERROR(write_bundle(file, *bytes));
    std::size_t const left_out = failed.size();
    Json const json = {{"schema", "xqajit.cache.export/1"},
                       {"file", file},
                       {"path", impl_->store->state().effective_path},
                       {"entries", entries},
                       {"entry_bytes", entry_bytes},
                       {"bytes", bytes->size()},
                       {"signed", key->has_value()},
                       {"failed", std::move(failed)}};
    Status status;
    if (left_out != 0)
        status = {XQAJIT_CACHE_CORRUPT,
                  fmt::format("bundle {}: {} entries or folders of {} are left out: they are corrupt or unreadable", file, left_out,
                              impl_->store->state().effective_path)};
    return ExportReport{to_text(json, 1), std::move(status)};
}

Result<std::string> Service::cache_import(std::string const& file, xqajit_import_options const& options) {
    if (options.allow_unsigned > 1)
        return invalid_argument(fmt::format("allow_unsigned is {}: accepted are 0, 1", options.allow_unsigned));
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    Result<std::optional<SigningKey>> const key = signing_key(impl_->settings);
    if (!key.ok()) return key.status();
    Result<std::shared_ptr<Bundle const>> const opened = open_bundle(file);
    if (!opened.ok()) return opened.status();
    Bundle const& bundle = **opened;
    XQAJIT_RETURN_IF_ERROR(check_admitted(bundle, key->has_value(), options.allow_unsigned == 1));

    std::vector<CacheKey> keys;
    std::size_t verified = 0;
    for (BundleRecord const& record : bundle.records()) keys.push_back(record.key);
    Result<std::size_t> const stored = impl_->store->store_all(keys, [&](std::size_t i) -> Result<cache::Entry> {
        BundleRecord const& record = bundle.records()[i];
        Result<cache::Entry> entry = bundle.read(record);
        if (!entry.ok() || !*key || record.signature.empty()) return entry;
        // A signature that is there and wrong is refused, --allow-unsigned or not.
        if (Status const status = (*key)->verify(cache::encode_entry(*entry), record.signature); !status.ok())
            return Status(status.code(), fmt::format("bundle {}: entry {}: {}", file, record.key.body.hex(), status.message()));
        ++verified;
        return entry;
    });
    if (!stored.ok()) return Status(stored.status().code(), stored.status().message() + "; nothing is imported");
    Json const json = {{"schema", "xqajit.cache.import/1"},
                       {"file", file},
                       {"path", impl_->store->state().effective_path},
                       {"entries", keys.size()},
                       {"imported", *stored},
                       {"verified", verified},
                       {"bytes", bundle.bytes()}};
    return to_text(json, 1);
}

Result<std::string> Service::cache_show_bundle(std::string const& file) {
    Result<std::shared_ptr<Bundle const>> const opened = open_bundle(file);
    if (!opened.ok()) return opened.status();
    Bundle const& bundle = **opened;
    Json entries = Json::array();
    std::uint64_t image_bytes = 0;
    std::size_t signed_entries = 0;
    for (BundleRecord const& record : bundle.records()) {
        entries.push_back({{"key", key_text(record.key)},
                           {"bytes", record.image_bytes},
                           {"packed_bytes", record.packed_bytes},
                           {"is_ptx", record.is_ptx},
                           {"is_signed", !record.signature.empty()},
                           {"metadata", parse_metadata(record.metadata)}});
        image_bytes += record.image_bytes;
        signed_entries += record.signature.empty() ? 0 : 1;
    }
    Json const json = {
        {"schema", "xqajit.cache.bundle/1"},
        {"file", file},
        {"bytes", bundle.bytes()},
        {"compressed", bundle.is_compressed()},
        {"entries", std::move(entries)},
        {"summary", {{"entries", bundle.records().size()}, {"image_bytes", image_bytes}, {"signed", signed_entries}}}};
    return to_text(json, 1);
}

}  // namespace xqajit
