#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {

using namespace testing;
using nlohmann::json;

TEST_CASE("the listing names entries, and one is shown by the start of its key", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    for (std::uint32_t const head_dim : {64u, 128u}) {
        XQAParams params = plain_params();
        params.head_dim = head_dim;
        require_ok(service->prepare(params));
    }
    json const listing = json::parse(must(service->cache_list()));
    CHECK(listing["schema"] == "xqajit.cache.ls/1");
    REQUIRE(listing["entries"].size() == 2);
    CHECK(listing["summary"]["entries"] == 2);
    for (json const& entry : listing["entries"]) {
        CHECK(entry["ok"] == true);
        CHECK(entry["metadata"]["family"] == "gmma");
        CHECK(entry["metadata"]["target"] == "sm_90a");
        CHECK(entry["metadata"]["nvrtc_version"] == "13.0");
        CHECK(entry["metadata"]["macros"].contains("XQAJIT_HEAD_DIM"));
        std::string const key = entry["key"];
        json const shown = json::parse(must(service->cache_show(key.substr(0, 16))));
        CHECK(shown["schema"] == "xqajit.cache.show/1");
        CHECK(shown["key"] == key);
    }
    CHECK(service->cache_show("").status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(service->cache_show("zz").status().message(), "zz"));

    // The same body by another compiler: the body alone names both.
    std::string const key = listing["entries"][0]["key"];
    XQAParams other = plain_params();
    world.install_compiler(1);
    auto const second = world.service();
    for (std::uint32_t const head_dim : {64u, 128u}) {
        other.head_dim = head_dim;
        require_ok(second->prepare(other));
    }
    Status const ambiguous = second->cache_show(key.substr(0, 32)).status();
    CHECK(ambiguous.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(ambiguous.message(), "2 entries"));
    CHECK(contains(ambiguous.message(), key));
    require_ok(second->cache_show(key).status());
}

TEST_CASE("a collection without a limit is refused, one with a limit removes by it", "[service][gc]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    xqajit_gc_options options = XQAJIT_GC_OPTIONS_INIT;
    Status const unlimited = service->cache_gc(options).status();
    CHECK(unlimited.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(unlimited.message(), "max_bytes and max_age_seconds"));
    options.max_bytes = 1;
    options.dry_run = 2;
    CHECK(contains(service->cache_gc(options).status().message(), "dry_run is 2: accepted are 0, 1"));
    options.dry_run = 0;
    Service::GcReport const report = must(service->cache_gc(options));
    require_ok(report.status);
    CHECK(json::parse(report.json)["removed"]["entries"]["files"] == 1);
    require_ok(service->prepare(plain_params()));  // what is loaded stays
    CHECK(world.compiles() == 1);
    require_ok(world.service()->prepare(plain_params()));
    CHECK(world.compiles() == 2);
}

TEST_CASE("verify names each entry that fails its checks", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    Service::VerifyReport const good = must(service->cache_verify());
    require_ok(good.status);
    CHECK(json::parse(good.json)["summary"]["ok"] == 1);
    std::string const path = world.cache_files().front();
    std::ofstream(path, std::ios::app) << "x";
    Service::VerifyReport const bad = must(service->cache_verify());
    CHECK(bad.status.code() == XQAJIT_CACHE_CORRUPT);
    json const document = json::parse(bad.json);
    CHECK(document["schema"] == "xqajit.cache.verify/1");
    CHECK(document["failed"][0]["path"] == path);
    CHECK(document["summary"]["failed"] == 1);
    CHECK(std::filesystem::exists(path));  // looking moves nothing
}

TEST_CASE("verify tells what is damaged from what it cannot read", "[service]") {
    World world;
    std::string const entry =
        world.cache_dir() + "/ab/" + std::string("ab") + std::string(30, '0') + "/" + std::string(32, '1') + ".xqa";
    std::filesystem::path const body = std::filesystem::path(entry).parent_path();
    std::filesystem::create_directories(body);
    std::filesystem::create_directory(world.cache_dir() + "/cd");
    for (auto const& item : std::filesystem::recursive_directory_iterator(world.cache_dir()))
        std::filesystem::permissions(item.path(), std::filesystem::perms::owner_all);
    world.write("damaged", "damaged");
    std::filesystem::copy(world.folder() + "/damaged", entry);
    std::filesystem::permissions(entry, std::filesystem::perms::owner_read);
    std::filesystem::permissions(world.cache_dir(), std::filesystem::perms::owner_all);
    auto const service = world.service();
    auto const verified = [&] {
        Service::VerifyReport const report = must(service->cache_verify());
        json document = json::parse(report.json);
        document["status"] = report.status.code();
        return document;
    };
    json const damaged = verified();
    CHECK(damaged["status"] == XQAJIT_CACHE_CORRUPT);
    CHECK(damaged["summary"] == json({{"entries", 1},
                                      {"ok", 0},
                                      {"failed", 1},
                                      {"corrupt", 1},
                                      {"unreadable", 0},
                                      {"temporaries", 0},
                                      {"temporary_bytes", 0}}));
    CHECK(damaged["failed"][0]["state"] == "corrupt");
    CHECK(damaged["failed"][0]["path"] == entry);

    // Room for one descriptor more: the directory is read, no folder of it can be.
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int const free = ::dup(0);
    ::close(free);
    rlimit const small{static_cast<rlim_t>(free) + 1, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
    json const unreadable = verified();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    INFO(unreadable.dump());
    CHECK(unreadable["status"] == XQAJIT_UNAVAILABLE);
    CHECK(unreadable["summary"] == json({{"entries", 0},
                                         {"ok", 0},
                                         {"failed", 2},
                                         {"corrupt", 0},
                                         {"unreadable", 2},
                                         {"temporaries", 0},
                                         {"temporary_bytes", 0}}));
    for (json const& failed : unreadable["failed"]) {
        CHECK(failed["state"] == "unreadable");
        CHECK(contains(failed["error"].get<std::string>(), "EMFILE"));
    }
}

}  // namespace xqajit
