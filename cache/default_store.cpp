#include <cstdlib>
#include <string>

#include "cache/disk_store.h"

namespace xqajit::cache {
namespace {

constexpr char kAccepted[] = "accepted is an absolute path other than /";

// A variable that may name a place of one's own. Relative paths do not (XDG says to ignore them), nor does the root, which containers
// give to a user without a passwd entry.
struct Home {
    char const* variable;
    char const* below;
};
constexpr Home kHomes[] = {{"XDG_CACHE_HOME", "/xqajit"}, {"HOME", "/.cache/xqajit"}};

}  // namespace

Result<StoreOrigin> default_store(std::string const& cache_dir_setting) {
    if (!cache_dir_setting.empty()) return StoreOrigin{cache_dir_setting, "XQAJIT_CACHE_DIR"};
    std::string passed_over;
    std::string unset = "XQAJIT_CACHE_DIR";
    for (Home const& home : kHomes) {
        char const* const value = std::getenv(home.variable);
        std::string path = value == nullptr ? "" : value;
        if (path.empty()) {
            unset += std::string(", ") + home.variable;
            continue;
        }
        while (!path.empty() && path.back() == '/') path.pop_back();
        if (path.starts_with('/')) return StoreOrigin{path + home.below, home.variable, passed_over};
        passed_over += (passed_over.empty() ? "" : "; ") + std::string(home.variable) + " is '" + value + "': " + kAccepted;
    }
    return unavailable("no cache directory: " + unset + " not set" + (passed_over.empty() ? "" : "; ") + passed_over);
}

}  // namespace xqajit::cache
