// Parts that several documents share.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cache/disk_store.h"

namespace xqajit {

// Named and effective path, origin, usable, exists, writable, reason.
nlohmann::ordered_json store_json(cache::DiskStore const& store);

}  // namespace xqajit
