// <dir>/totals.json: what the processes that used a cache directory counted, summed up. The text is the caller's.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace xqajit::cache {

inline constexpr char kTotals[] = "totals.json";

// "" where there is none yet. CACHE_CORRUPT: something else stands there, or it is longer than any; INTERNAL: it cannot be read.
Result<std::string> read_totals(int directory);

// Replaces the text by change(what read_totals() gives), which a CACHE_CORRUPT one does not stop. Processes exclude each other by a lock on
// the directory. Nothing is changed where the file cannot be read, or (UNAVAILABLE) the lock is not had within a second or does not work,
// or nothing can be written. The file is not synced: it is worth no wait for the disk.
using ChangeTotals = std::function<std::string(Result<std::string> const& before)>;
Status update_totals(int directory, ChangeTotals const& change);

}  // namespace xqajit::cache
