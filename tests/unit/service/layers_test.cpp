// Kernels that a layer below the cache directory has: found there, counted there, and copied only when asked.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cache/bundle.h"
#include "unit/cache/fixture.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

// The kernel of plain_params() in a directory and in a bundle, and an empty cache directory.
struct Shipped {
    Shipped() {
        world.enter(0);
        require_ok(world.service()->prepare(plain_params()));
        require_ok(must(world.service()->cache_export(bundle)).status);
        std::filesystem::rename(world.cache_dir(), directory);
        REQUIRE(world.compiles() == 1);
    }
    World world;
    std::string bundle = world.folder() + "/kernels.xqb";
    std::string directory = world.folder() + "/system";
};

json hits(Service& service) { return json::parse(must(service.metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON)))["hits"]; }

json hits_of(char const* layer) {
    json hits = {{"memory", 0}, {"user", 0}, {"system", 0}, {"bundle", 0}, {"remote", 0}};
    hits[layer] = 1;
    return hits;
}

}  // namespace

TEST_CASE("a kernel of a layer is neither compiled nor copied, and its hit is counted by layer", "[service][layers][P07]") {
    Shipped const shipped;
    for (auto const& [path, layer] : {std::pair{shipped.directory, "system"}, {shipped.bundle, "bundle"}}) {
        shipped.world.set("XQAJIT_CACHE_LAYERS", path);
        auto const service = shipped.world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(hits(*service) == hits_of(layer));
        CHECK(service->stats().disk_hits == 1);
        CHECK(service->stats().misses == 0);
        CHECK_FALSE(std::filesystem::exists(shipped.world.cache_dir()));
    }
    CHECK(shipped.world.compiles() == 1);
}

TEST_CASE("the cache directory goes before the layers, and the first layer before the next", "[service][layers][J12]") {
    Shipped const shipped;
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.bundle + ":" + shipped.directory);
    auto const first = shipped.world.service();
    require_ok(first->prepare(plain_params()));
    CHECK(hits(*first) == hits_of("bundle"));
    std::filesystem::copy(shipped.directory, shipped.world.cache_dir(), std::filesystem::copy_options::recursive);
    auto const second = shipped.world.service();
    require_ok(second->prepare(plain_params()));
    CHECK(hits(*second) == hits_of("user"));
}

TEST_CASE("XQAJIT_CACHE_COPY_HITS keeps a layer's kernel in the cache directory", "[service][layers]") {
    Shipped const shipped;
    shipped.world.set("XQAJIT_CACHE_COPY_HITS", "1");
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.bundle);
    auto const copying = shipped.world.service();
    require_ok(copying->prepare(plain_params()));
    CHECK(hits(*copying) == hits_of("bundle"));
    REQUIRE(shipped.world.cache_files().size() == 1);
    json const counted = json::parse(must(copying->metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON)));
    CHECK(counted["stored_bytes"] == counted["read_bytes"]);
    shipped.world.set("XQAJIT_CACHE_LAYERS", "");
    auto const service = shipped.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(hits(*service) == hits_of("user"));
    CHECK(shipped.world.compiles() == 1);
}

TEST_CASE("a cache directory that cannot be made costs a layer's hit nothing", "[service][layers][J12]") {
    Shipped const shipped;
    shipped.world.write("cache", "a file");
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.directory);
    for (char const* copy : {"0", "1"}) {
        shipped.world.set("XQAJIT_CACHE_COPY_HITS", copy);
        auto const service = shipped.world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(hits(*service) == hits_of("system"));
    }
}

TEST_CASE("a damaged entry of a layer is compiled once, into the cache directory", "[service][layers][J07]") {
    Shipped const shipped;
    std::string bytes = shipped.world.read(shipped.bundle);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    std::filesystem::remove(shipped.bundle);
    shipped.world.write("kernels.xqb", bytes);
    ::chmod(shipped.bundle.c_str(), 0644);
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.bundle);
    for (int i = 0; i < 2; ++i) {
        auto const service = shipped.world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(shipped.world.compiles() == 2);
    }
    CHECK(shipped.world.logged("checksum does not match").size() == 1);
    CHECK(shipped.world.read(shipped.bundle) == bytes);
}

TEST_CASE("a layer that is missing or foreign is told of once, shown with its reason, and done without", "[service][layers][J27]") {
    Shipped const shipped;
    std::string const foreign = shipped.world.folder() + "/foreign", missing = shipped.world.folder() + "/missing";
    shipped.world.write("foreign", std::string(100, 'x'));
    ::chmod(foreign.c_str(), 0644);
    shipped.world.set("XQAJIT_CACHE_LAYERS", foreign + ":" + missing + ":" + shipped.directory + ":" + shipped.bundle);
    auto const service = shipped.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(hits(*service) == hits_of("system"));
    CHECK(shipped.world.logged("magic is not that of a bundle").size() == 1);
    CHECK(shipped.world.logged(missing).size() == 1);
    for (std::string const& document : {must(service->cache_path()), must(service->doctor())}) {
        json const layers = json::parse(document)["layers"];
        REQUIRE(layers.size() == 4);
        CHECK(layers[0]["usable"] == false);
        CHECK(layers[0]["kind"].is_null());
        CHECK(contains(layers[0]["reason"], "magic"));
        CHECK(contains(layers[1]["reason"], "ENOENT"));
        CHECK(layers[2] == json({{"path", shipped.directory},
                                 {"origin", "XQAJIT_CACHE_LAYERS"},
                                 {"kind", "directory"},
                                 {"usable", true},
                                 {"reason", ""}}));
        CHECK(layers[3]["kind"] == "bundle");
        CHECK(layers[3]["entries"] == 1);
        CHECK(layers[3]["bytes"] == std::filesystem::file_size(shipped.bundle));
    }
}

TEST_CASE("explain, explain-miss and prewarm find a layer's kernel too", "[service][layers][J14]") {
    Shipped const shipped;
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.bundle);
    auto const service = shipped.world.service();
    json const chain = json::parse(must(service->explain(plain_params(), nullptr, 1, 1)));
    CHECK(contains(chain.dump(), R"("layer":"bundle")"));
    XQAParams const params = plain_params();
    CHECK(json::parse(must(service->cache_explain_miss("", &params, nullptr)))["kernels"][0]["result"] == "hit");
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    char const* const list = R"({"version": 1, "shapes": [
        {"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128, "page_size": 64}]})";
    json const report = json::parse(must(service->prewarm(list, options)).json);
    CHECK(report["summary"]["hits"] == 1);
    CHECK(shipped.world.compiles() == 1);
    // Without a compiler the layers serve as the directory does.
    shipped.world.set("XQAJIT_NVRTC_PATH", shipped.world.folder() + "/nowhere");
    require_ok(shipped.world.service()->prepare(plain_params()));
}

TEST_CASE("a layer's image that the driver refuses is compiled into the cache directory, which then goes first",
          "[service][layers][J29]") {
    Shipped const shipped;
    shipped.world.set("XQAJIT_CACHE_LAYERS", shipped.bundle);
    shipped.world.cuda().fail_images(CUDA_ERROR_INVALID_IMAGE, CUDA_SUCCESS);
    require_ok(shipped.world.service()->prepare(plain_params()));
    CHECK(shipped.world.compiled_targets() == std::vector<std::string>{"sm_90a", "sm_90a", "compute_90a"});
    shipped.world.cuda().fail_images(CUDA_SUCCESS, CUDA_SUCCESS);
    auto const service = shipped.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(hits(*service) == hits_of("user"));
}

TEST_CASE("metadata from elsewhere, however deep, costs no document", "[service][bundle]") {
    World world;
    constexpr std::size_t kDepth = 400'000;
    cache::Entry entry = cache::test::sample_entry(1);
    entry.metadata = "{\"nvrtc_version\": " + std::string(kDepth, '[') + std::string(kDepth, ']') +
                     ", \"macros\": {\"A\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}}";
    cache::BundleWriter writer;
    require_ok(writer.add(entry, ""));
    std::string const file = world.folder() + "/deep.xqb";
    world.write("deep.xqb", must(writer.finish()));
    auto const service = world.service();
    CHECK(json::parse(must(service->cache_show_bundle(file)))["entries"][0]["metadata"].is_null());
    xqajit_import_options options = XQAJIT_IMPORT_OPTIONS_INIT;
    options.allow_unsigned = 1;
    must(service->cache_import(file, options));
    CHECK(json::parse(must(service->cache_list()))["entries"][0]["metadata"].is_null());
    must(service->cache_show(entry.key.body.hex()));
    XQAParams const params = plain_params();
    CHECK(json::parse(must(service->cache_explain_miss("", &params, "sm_90a")))["kernels"][0]["result"] == "miss");
}

}  // namespace xqajit
