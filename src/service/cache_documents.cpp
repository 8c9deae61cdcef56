// The disk store as documents.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "service/documents.h"
#include "service/impl.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

Json entry_json(cache::ListedEntry const& entry) {
    Json json = with_state({{"key", key_text(entry.key)},
                            {"path", entry.path},
                            {"bytes", entry.bytes},
                            {"is_ptx", entry.is_ptx},
                            {"ok", entry.status.ok()}},
                           entry.status);
    json["metadata"] = parse_metadata(entry.metadata);
    return json;
}

}  // namespace

// A corrupt file is compiled again; one that cannot be read wants its permissions or its disk mended.
Json with_state(Json json, Status const& status) {
    json["state"] = status.ok() ? "ok" : status.code() == XQAJIT_CACHE_CORRUPT ? "corrupt" : "unreadable";
    if (!status.ok()) json["error"] = status.message();
    return json;
}

std::string key_text(CacheKey const& key) { return key.body.hex() + "/" + key.compiler.hex(); }

Status usable(cache::DiskStore const& store) {
    cache::StoreState const state = store.state();
    if (state.usable) return {};
    return unavailable(fmt::format("the cache directory {} is not usable: {}", store.origin().path, state.reason));
}

Json unlisted_json(cache::Listing const& listing) {
    Json unlisted = Json::array();
    for (cache::ListedFolder const& folder : listing.unlisted)
        unlisted.push_back(with_state({{"path", folder.path}}, folder.status));
    return unlisted;
}

Json store_json(cache::DiskStore const& store) {
    cache::StoreState const state = store.state();
    return {{"named_path", store.origin().path},
            {"origin", store.origin().origin},
            {"path", state.effective_path},
            {"usable", state.usable},
            {"exists", state.exists},
            {"writable", state.writable},
            {"reason", state.reason}};
}

Json layers_json(cache::Layers const& layers) {
    Json list = Json::array();
    for (cache::LayerState const& state : layers.states()) {
        bool const usable = state.kind != cache::LayerKind::kUnusable;
        bool const is_bundle = state.kind == cache::LayerKind::kBundle;
        Json json = {{"path", state.path},
                     {"origin", state.origin},
                     {"kind", !usable     ? Json(nullptr)
                              : is_bundle ? Json("bundle")
                                          : Json("directory")},
                     {"usable", usable},
                     {"reason", state.reason}};
        if (is_bundle) json.update({{"entries", state.entries}, {"bytes", state.bytes}});
        list.push_back(std::move(json));
    }
    return list;
}

Json remote_json(cache::Remote& remote, Settings const& settings) {
    if (!remote.is_named()) return nullptr;
    cache::RemoteState const state = remote.state();
    std::string const& key_file = settings.text(SettingId::kCacheKeyFile);
    return {{"url", state.url},
            {"origin", "XQAJIT_REMOTE_CACHE"},
            {"usable", state.usable},
            {"reachable", state.reachable},
            {"writable", state.writable},
            {"key_file", state.has_key      ? "present"
                         : key_file.empty() ? "unset"
                                            : "not usable"},
            {"allow_unsigned", settings.flag(SettingId::kRemoteAllowUnsigned)},
            {"reason", state.reason}};
}

Result<std::string> Service::cache_list() {
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    Json entries = Json::array();
    std::uint64_t bytes = 0;
    cache::Listing const listing = impl_->store->list();
    for (cache::ListedEntry const& entry : listing.entries) {
        entries.push_back(entry_json(entry));
        bytes += entry.bytes;
    }
    std::size_t const count = entries.size();
    cache::StoreState const state = impl_->store->state();
    Json const json = {
        {"schema", "xqajit.cache.ls/1"}, {"path", state.effective_path},       {"exists", state.exists},
        {"entries", std::move(entries)}, {"unlisted", unlisted_json(listing)}, {"summary", {{"entries", count}, {"bytes", bytes}}}};
    return to_text(json, 1);
}

Result<std::string> Service::cache_show(std::string_view key_prefix) {
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    std::vector<cache::ListedEntry> matches;
    std::string names;
    cache::Listing listing = impl_->store->list();
    for (cache::ListedEntry& entry : listing.entries) {
        std::string const key = key_text(entry.key);
        if (!key.starts_with(key_prefix)) continue;
        names += (names.empty() ? "" : ", ") + key;
        matches.push_back(std::move(entry));
    }
    if (key_prefix.empty() || matches.empty()) {
        return invalid_argument(
            fmt::format("key is '{}': no entry of {} starts with it", key_prefix, impl_->store->state().effective_path));
    }
    if (matches.size() > 1) {
        return invalid_argument(fmt::format("key is '{}': {} entries start with it: {}", key_prefix, matches.size(), names));
    }
    Json json = {{"schema", "xqajit.cache.show/1"}};
    json.update(entry_json(matches.front()));
    return to_text(json, 1);
}

Result<Service::VerifyReport> Service::cache_verify() {
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    cache::Listing const listing = impl_->store->list();
    cache::StoreState const state = impl_->store->state();
    Json failed = Json::array();
    std::size_t ok = 0, corrupt = 0, unreadable = 0;
    auto const judge = [&](Json json, Status const& status) {
        (status.ok() ? ok : status.code() == XQAJIT_CACHE_CORRUPT ? corrupt : unreadable) += 1;
        if (!status.ok()) failed.push_back(with_state(std::move(json), status));
    };
    for (cache::ListedFolder const& folder : listing.unlisted) judge({{"path", folder.path}}, folder.status);
    for (cache::ListedEntry const& entry : listing.entries)
        judge({{"key", key_text(entry.key)}, {"path", entry.path}}, entry.status);
    Json temporaries = Json::array();
    std::uint64_t temporary_bytes = 0;
    for (cache::ListedTemporary const& file : listing.temporaries) {
        temporaries.push_back({{"path", file.path}, {"bytes", file.bytes}});
        temporary_bytes += file.bytes;
    }
    Json const json = {{"schema", "xqajit.cache.verify/1"},
                       {"path", state.effective_path},
                       {"exists", state.exists},
                       {"failed", std::move(failed)},
                       {"temporaries", std::move(temporaries)},
                       {"summary",
                        {{"entries", listing.entries.size()},
                         {"ok", ok},
                         {"failed", corrupt + unreadable},
                         {"corrupt", corrupt},
                         {"unreadable", unreadable},
                         {"temporaries", listing.temporaries.size()},
                         {"temporary_bytes", temporary_bytes}}}};
    Status status;
    if (corrupt + unreadable != 0) {
        status = {corrupt != 0 ? XQAJIT_CACHE_CORRUPT : XQAJIT_UNAVAILABLE,
                  fmt::format("cache directory {}: {} entries or folders are corrupt, {} unreadable", state.effective_path, corrupt,
                              unreadable)};
    }
    return VerifyReport{to_text(json, 1), std::move(status)};
}

namespace {

Json part_json(cache::GcPart const& part) {
    auto const json = [](cache::GcCount const& count) { return Json{{"files", count.files}, {"bytes", count.bytes}}; };
    return {{"entries", json(part.entries)}, {"temporaries", json(part.temporaries)}, {"quarantined", json(part.quarantined)}};
}

Json limit_json(std::uint64_t limit) { return limit == 0 ? Json(nullptr) : Json(limit); }

}  // namespace

Result<Service::GcReport> Service::cache_gc(xqajit_gc_options const& options) {
    if (options.dry_run > 1) return invalid_argument(fmt::format("dry_run is {}: accepted are 0, 1", options.dry_run));
    if (options.max_bytes == 0 && options.max_age_seconds == 0)
        return invalid_argument("max_bytes and max_age_seconds are both 0: at least one limit is needed");
    XQAJIT_RETURN_IF_ERROR(usable(*impl_->store));
    cache::GcLimits limits;
    limits.dry_run = options.dry_run == 1;
    if (options.max_bytes != 0) limits.max_bytes = options.max_bytes;
    if (options.max_age_seconds != 0) limits.max_age_seconds = options.max_age_seconds;
    Result<cache::GcReport> const collected = impl_->store->collect(limits);
    if (!collected.ok()) return collected.status();
    cache::StoreState const state = impl_->store->state();
    Json failed = Json::array();
    for (cache::GcFailure const& failure : collected->failed)
        failed.push_back(with_state({{"path", failure.path}}, failure.status));
    Json const json = {
        {"schema", "xqajit.cache.gc/1"},
        {"path", state.effective_path},
        {"exists", state.exists},
        {"dry_run", limits.dry_run},
        {"limits", {{"max_bytes", limit_json(options.max_bytes)}, {"max_age_seconds", limit_json(options.max_age_seconds)}}},
        {"removed", part_json(collected->removed)},
        {"kept", part_json(collected->kept)},
        {"foreign", {{"files", collected->foreign.files}, {"bytes", collected->foreign.bytes}}},
        {"failed", std::move(failed)}};
    Status status;
    if (!collected->failed.empty())
        status = unavailable(fmt::format("cache directory {}: {} files or folders could not be read or removed",
                                         state.effective_path, collected->failed.size()));
    return GcReport{to_text(json, 1), std::move(status)};
}

Result<std::string> Service::cache_path() {
    Json json = {{"schema", "xqajit.cache.path/1"}};
    json.update(store_json(*impl_->store));
    json["layers"] = layers_json(*impl_->layers);
    json["remote"] = remote_json(*impl_->remote, impl_->settings);
    return to_text(json, 1);
}

}  // namespace xqajit
