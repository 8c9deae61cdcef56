// Garbage collection of a cache directory: the least recently used entries go first. FORMAT.md has the rules.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace xqajit::cache {

struct GcLimits {
    std::optional<std::uint64_t> max_bytes;        // of all entries together
    std::optional<std::uint64_t> down_to_bytes;    // what is left where they have more; unset: max_bytes
    std::optional<std::uint64_t> max_age_seconds;  // since the last use
    bool dry_run = false;                          // removes nothing, and reports what would be
};

struct GcCount {
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
};
struct GcPart {
    GcCount entries;
    GcCount temporaries;
    GcCount quarantined;
};
struct GcFailure {
    std::string path;
    Status status;  // CACHE_CORRUPT: something else stands in place of a folder, or others may write it; UNAVAILABLE: out of reach
};
struct GcReport {
    GcPart removed;
    GcPart kept;
    GcCount foreign;  // under a name of the cache's, but another user's or no regular file: left, and in no limit
    std::vector<GcFailure> failed;
};

// directory: of the cache, trusted and writable; path: its name in the report. Entries are removed by age, then by size, each only if
// it is still the one that was listed: what another process used or published meanwhile is kept. Temporary and quarantined files go by
// age alone, an hour. Folders that are empty go too: a store makes its own again.
GcReport collect_garbage(int directory, std::string const& path, GcLimits const& limits);

// Notes a use in the entry's time, once an hour and if the file is the user's. Never fails: at worst the entry seems older.
void mark_used(int folder, std::string const& name);
// A quarantined file's hour begins when it is set aside.
void mark_set_aside(int quarantine, std::string const& name);

// When a directory of bounded size is walked: after a process's first store, then for each tenth of the bound that it stored.
class SizeCap {
public:
    explicit SizeCap(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}  // 0: no bound
    bool is_due(std::uint64_t stored_bytes);
    GcLimits limits() const;  // down to 80 %, so that not every store collects

private:
    std::uint64_t const max_bytes_;
    std::atomic<bool> is_first_{true};
    std::atomic<std::uint64_t> stored_{0};  // since the last walk
};

}  // namespace xqajit::cache
