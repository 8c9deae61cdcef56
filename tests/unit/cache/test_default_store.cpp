#include <cstdlib>
#include <optional>
#include <string>

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
bool gives(std::string const& setting, Text const& xdg, Text const& home, Text const& path, std::string const& origin) {
    return in_child([&] {
               set("XDG_CACHE_HOME", xdg);
               set("HOME", home);
               Result<StoreOrigin> const store = default_store(setting);
               if (!path) return !store.ok() && store.status().code() == XQAJIT_UNAVAILABLE ? 0 : 1;
               return store.ok() && store->path == *path && store->origin == origin ? 0 : 1;
           }) == 0;
}

}  // namespace

TEST_CASE("the cache directory is the setting's, else XDG's, else the home's", "[cache][J12]") {
    CHECK(gives("/opt/cache", "/xdg", "/home/u", "/opt/cache", "XQAJIT_CACHE_DIR"));
    CHECK(gives("relative", "/xdg", "/home/u", "relative", "XQAJIT_CACHE_DIR"));
    CHECK(gives("", "/xdg", "/home/u", "/xdg/xqajit", "XDG_CACHE_HOME"));
    CHECK(gives("", "/xdg//", "/home/u", "/xdg/xqajit", "XDG_CACHE_HOME"));
    CHECK(gives("", {}, "/home/u", "/home/u/.cache/xqajit", "HOME"));
    for (char const* no_place : {"", "relative", "/", "//"}) CHECK(gives("", no_place, "/home/u", "/home/u/.cache/xqajit", "HOME"));
}

TEST_CASE("no home is no cache directory", "[cache][J12]") {
    for (Text const& home : {Text(), Text(""), Text("/"), Text("//"), Text("home")}) {
        CHECK(gives("", {}, home, {}, ""));
        CHECK(gives("/opt/cache", {}, home, "/opt/cache", "XQAJIT_CACHE_DIR"));
    }
}
