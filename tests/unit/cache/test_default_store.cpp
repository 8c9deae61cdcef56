#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "cache/disk_store.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

namespace {

using Text = std::optional<std::string>;

void set(char const* name, Text const& value) {
    if (value)
        ::setenv(name, value->c_str(), 1);
    else
        ::unsetenv(name);
}

// In a child, so that the environment of this process stays as it is.
bool gives(std::string const& setting, Text const& xdg, Text const& home, Text const& path, std::string const& origin,
           std::vector<std::string> const& named = {}) {
    return in_child([&] {
               set("XDG_CACHE_HOME", xdg);
               set("HOME", home);
               Result<StoreOrigin> const store = default_store(setting);
               std::string const told = store.ok() ? store->warning : store.status().message();
               for (std::string const& part : named)
                   if (told.find(part) == std::string::npos) return 2;
               if (!path) return !store.ok() && store.status().code() == XQAJIT_UNAVAILABLE ? 0 : 1;
               return store.ok() && store->path == *path && store->origin == origin && told.empty() == named.empty() ? 0 : 1;
           }) == 0;
}

}  // namespace

TEST_CASE("the cache directory is the setting's, else XDG's, else the home's", "[cache][J12]") {
    CHECK(gives("/opt/cache", "/xdg", "/home/u", "/opt/cache", "XQAJIT_CACHE_DIR"));
    CHECK(gives("relative", "/xdg", "/home/u", "relative", "XQAJIT_CACHE_DIR"));
    CHECK(gives("", "/xdg", "/home/u", "/xdg/xqajit", "XDG_CACHE_HOME"));
    CHECK(gives("", "/xdg//", "/home/u", "/xdg/xqajit", "XDG_CACHE_HOME"));
    CHECK(gives("", {}, "/home/u", "/home/u/.cache/xqajit", "HOME"));
    CHECK(gives("", "", "/home/u", "/home/u/.cache/xqajit", "HOME"));
}

TEST_CASE("a variable that names no place of one's own is passed over, by name, value and what is accepted", "[cache][J12]") {
    for (std::string const& bad : {std::string("relative"), std::string("./x"), std::string("~"), std::string("/"),
                                   std::string("//"), std::string("a\xff")}) {
        INFO(bad);
        std::string const home = "HOME is '" + bad + "': accepted is an absolute path other than /";
        std::string const xdg = "XDG_CACHE_HOME is '" + bad + "': accepted is an absolute path other than /";
        CHECK(gives("", bad, "/home/u", "/home/u/.cache/xqajit", "HOME", {xdg}));
        CHECK(gives("", {}, bad, {}, "", {home, "XQAJIT_CACHE_DIR, XDG_CACHE_HOME not set"}));
        CHECK(gives("", "", bad, {}, "", {home, "XQAJIT_CACHE_DIR, XDG_CACHE_HOME not set"}));
        CHECK(gives("", bad, bad, {}, "", {home, xdg, "XQAJIT_CACHE_DIR not set"}));
        CHECK(gives("", bad, {}, {}, "", {xdg, "XQAJIT_CACHE_DIR, HOME not set"}));
        CHECK(gives("/opt/cache", bad, bad, "/opt/cache", "XQAJIT_CACHE_DIR"));
    }
}

TEST_CASE("no home is no cache directory", "[cache][J12]") {
    for (Text const& unset : {Text(), Text("")}) {
        CHECK(gives("", unset, unset, {}, "", {"XQAJIT_CACHE_DIR, XDG_CACHE_HOME, HOME not set"}));
        CHECK(gives("/opt/cache", unset, unset, "/opt/cache", "XQAJIT_CACHE_DIR"));
    }
}
