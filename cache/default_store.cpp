#include <cstdlib>
#include <string_view>

#include "cache/disk_store.h"

namespace xqajit::cache {
namespace {

// "" for what names no place of one's own: unset, relative (XDG says to ignore that), or the root, which containers give to a
// user without a passwd entry.
std::string own_directory(char const* variable) {
    char const* const value = std::getenv(variable);
    std::string path = value == nullptr ? "" : value;
    while (!path.empty() && path.back() == '/') path.pop_back();
    return path.starts_with('/') ? path : std::string();
}

}  // namespace

Result<StoreOrigin> default_store(std::string const& cache_dir_setting) {
    if (!cache_dir_setting.empty()) return StoreOrigin{cache_dir_setting, "XQAJIT_CACHE_DIR"};
    if (std::string const path = own_directory("XDG_CACHE_HOME"); !path.empty())
        return StoreOrigin{path + "/xqajit", "XDG_CACHE_HOME"};
    if (std::string const path = own_directory("HOME"); !path.empty()) return StoreOrigin{path + "/.cache/xqajit", "HOME"};
    return unavailable("no cache directory: XQAJIT_CACHE_DIR, XDG_CACHE_HOME and HOME name none");
}

}  // namespace xqajit::cache
