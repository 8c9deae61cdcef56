// Parts that several documents share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cache/disk_store.h"

namespace xqajit {

// Named and effective path, origin, usable, exists, writable, reason.
nlohmann::ordered_json store_json(cache::DiskStore const& store);
std::string key_text(CacheKey const& key);  // "<body>/<compiler>"
// UNAVAILABLE where the directory cannot be read: that is no empty store.
Status usable(cache::DiskStore const& store);
// The folders that could not be listed, each with path, state and error.
nlohmann::ordered_json unlisted_json(cache::Listing const& listing);

}  // namespace xqajit
