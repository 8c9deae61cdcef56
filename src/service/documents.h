// Parts that several documents share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/settings.h"
#include "cache/disk_store.h"
#include "cache/layers.h"
#include "cache/remote.h"

namespace xqajit {

// Named and effective path, origin, usable, exists, writable, reason.
nlohmann::ordered_json store_json(cache::DiskStore const& store);
// Each layer below the directory: path, origin, kind, usable, reason; of a bundle its entries and bytes too.
nlohmann::ordered_json layers_json(cache::Layers const& layers);
// Asks the server. url, origin, usable, reachable, writable, key_file ("present", "unset", "not usable"), allow_unsigned, reason; null where the
// settings name none.
nlohmann::ordered_json remote_json(cache::Remote& remote, Settings const& settings);
// with state ("ok", "corrupt", "unreadable") and, unless it is ok, error
nlohmann::ordered_json with_state(nlohmann::ordered_json json, Status const& status);
std::string key_text(CacheKey const& key);  // "<body>/<compiler>"
// UNAVAILABLE where the directory cannot be read: that is no empty store.
Status usable(cache::DiskStore const& store);
// The folders that could not be listed, each with path, state and error.
nlohmann::ordered_json unlisted_json(cache::Listing const& listing);

}  // namespace xqajit
