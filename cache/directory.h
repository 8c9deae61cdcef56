// Directories that may hold code: opened by descriptor, never through a planted link, and only if nobody else can have written there.
#pragma once

#include <sys/stat.h>

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

struct OpenedRoot {
    UniqueFd directory;     // not valid where there is none yet
    std::string path;       // absolute; the uid-N subdirectory where the named one is shared
    bool writable = false;  // of one that is missing: whether it can be made
    std::string reason;     // why not writable, why the subdirectory, that it is missing; else empty
};
// The directory that a person named. `create`: makes it 0700, with its parents, where it is missing. Where others can write in it,
// the 0700 subdirectory uid-N of the effective user takes its place. A link to a directory is followed if the user or root made it.
Result<OpenedRoot> open_root(std::string const& path, bool create);

// Names in the folder, sorted, without "." and "..": none if it was removed meanwhile. UNAVAILABLE: it cannot be read.
Result<std::vector<std::string>> names_in(int directory);

}  // namespace xqajit::cache
