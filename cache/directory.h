// Directories that may hold code: opened by descriptor, never through a planted link, and only if nobody else can have written there.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace xqajit::cache {

// The rule for everything in the cache: owned by the effective user or by root, and writable by nobody else. "" if it holds,
// else what breaks it, as "is owned by uid 1001: accepted are 0 and 1000".
std::string distrust(struct stat const& file);

// The folder `name` of `directory`. `create`: makes it 0700 where it is missing. CACHE_CORRUPT: something else stands there (a file, a
// link), or it fails distrust(). UNAVAILABLE: it cannot be made or opened. An invalid descriptor: it is missing and `create` is false.
Result<UniqueFd> open_folder_at(int directory, std::string const& name, bool create);

// A file in a folder of the cache. It is never opened through a link, and judged on its descriptor: what is read is what was judged.
struct CacheFile {
    enum class Outcome {
        kGood,
        kMissing,
        kUnreadable,  // permissions, an I/O error: UNAVAILABLE
        kBad          // not a regular file, fails distrust(), or is too long: CACHE_CORRUPT
    };
    Outcome outcome = Outcome::kMissing;
    struct stat facts {};  // of what stands there, unless it is missing
    Status status;         // why not good: "is not a regular file"
    std::string bytes;
};
CacheFile read_cache_file(int folder, std::string const& name, std::uint64_t max_bytes);

struct OpenedRoot {
    UniqueFd directory;     // not valid where there is none yet
    std::string path;       // absolute; the uid-N subdirectory where the named one is shared
    bool writable = false;  // of one that is missing: whether it can be made
    std::string reason;     // why not writable, why the subdirectory, that it is missing; else empty
};
// The directory that a person named. `create`: makes it 0700, with its parents, where it is missing. Where others can write in it,
// the 0700 subdirectory uid-N of the effective user takes its place. A link to a directory is followed if the user or root made it.
Result<OpenedRoot> open_root(std::string const& path, bool create);

// What a layer's path names, to read: a directory, or a file for the caller to look into. A link is followed if the user or root made it.
// UNAVAILABLE: it is missing, fails distrust(), is neither, or its path is not absolute.
struct OpenedLayer {
    UniqueFd descriptor;
    bool is_directory = false;
};
Result<OpenedLayer> open_layer_path(std::string const& path);

// Names in the folder, sorted, without "." and "..": none if it was removed meanwhile. UNAVAILABLE: it cannot be read.
Result<std::vector<std::string>> names_in(int directory);

}  // namespace xqajit::cache
