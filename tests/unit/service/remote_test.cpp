// Kernels of a remote cache: found there, kept here, and put there when they are compiled.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "driver/cuda_functions.h"
#include "servers/nginx.h"
#include "servers/scripted_server.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

json counted(Service& service) { return json::parse(must(service.metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON))); }

// A machine with a key file and a server, which may be written.
struct Connected {
    Connected() {
        world.enter(0);
        world.write("key", std::string(32, 'k'));
        REQUIRE(::chmod((world.folder() + "/key").c_str(), 0600) == 0);
        world.set("XQAJIT_CACHE_KEY_FILE", world.folder() + "/key");
        world.set("XQAJIT_REMOTE_CACHE", server.url());
        world.set("XQAJIT_REMOTE_CACHE_WRITE", "1");
        world.set("XQAJIT_REMOTE_TIMEOUT", "20000");
        std::string const reason = json::parse(must(world.service()->cache_path()))["remote"]["reason"];
        if (contains(reason, "this build")) skip_test(reason.c_str());
    }
    // As on a machine that has nothing yet.
    void forget() const { std::filesystem::remove_all(world.cache_dir()); }
    // Compiled here, put there, and forgotten.
    void fill() const {
        require_ok(world.service()->prepare(plain_params()));
        REQUIRE(server.files().size() == 1);
        forget();
    }
    World world;
    KeepingServer server;
};

char const* const kPlainList = R"({"version": 1, "shapes": [
    {"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128, "page_size": 64}]})";

json prewarm(Service& service) {
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    return json::parse(must(service.prewarm(kPlainList, options)).json);
}

}  // namespace

TEST_CASE("what one machine compiles another gets from the remote, once, and keeps", "[service][remote][J01][P07]") {
    Connected const at;
    at.fill();
    at.world.set("XQAJIT_REMOTE_CACHE_WRITE", "");
    auto const first = at.world.service();
    require_ok(first->prepare(plain_params()));
    json const metrics = counted(*first);
    CHECK(metrics["hits"]["remote"] == 1);
    CHECK(metrics["misses"] == 0);
    CHECK(metrics["compiles"] == 0);
    CHECK(metrics["stored_bytes"] == metrics["read_bytes"]);
    CHECK(first->stats().disk_hits == 0);
    CHECK(at.world.logged("remote hit (remote)").size() == 1);
    CHECK(at.world.cache_files().size() == 1);
    std::size_t const asked = at.server.requests();
    auto const second = at.world.service();
    require_ok(second->prepare(plain_params()));
    CHECK(counted(*second)["hits"]["user"] == 1);
    CHECK(at.server.requests() == asked);
    CHECK(at.world.compiles() == 1);
}

TEST_CASE("directory and layers go before the remote, and a kernel that any has is not asked for", "[service][remote][J12]") {
    Connected const at;
    require_ok(at.world.service()->prepare(plain_params()));
    std::filesystem::rename(at.world.cache_dir(), at.world.folder() + "/system");
    at.world.set("XQAJIT_CACHE_LAYERS", at.world.folder() + "/system");
    std::size_t const asked = at.server.requests();
    auto const service = at.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(counted(*service)["hits"]["system"] == 1);
    CHECK(at.server.requests() == asked);
}

TEST_CASE("a cache directory that cannot be written costs a remote's hit nothing", "[service][remote][J03][J12]") {
    Connected const at;
    at.fill();
    at.world.write("cache", "a file");
    for (int i = 0; i < 2; ++i) {
        auto const service = at.world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(counted(*service)["hits"]["remote"] == 1);
    }
    CHECK(at.world.compiles() == 1);
}

TEST_CASE("a remote's entry that is damaged or forged is compiled, and replaced there", "[service][remote][J07]") {
    Connected at;
    at.fill();
    auto const [path, bytes] = *at.server.files().begin();
    for (std::size_t const byte : {std::size_t{20}, bytes.size() / 2}) {
        std::string changed = bytes;
        changed[byte] = static_cast<char>(changed[byte] ^ 1);
        at.server.put(path, changed);
        at.forget();
        {
            auto const service = at.world.service();
            require_ok(service->prepare(plain_params()));
            CHECK(counted(*service)["remote_refused"] == 1);
            CHECK(counted(*service)["misses"] == 1);
        }
        CHECK(at.server.files()[path] != changed);
        at.forget();
        auto const service = at.world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(counted(*service)["hits"]["remote"] == 1);
    }
    CHECK(at.world.compiles() == 3);
}

TEST_CASE("one changed byte of the key is another entry, and never that of another kernel", "[service][remote][J08][J10]") {
    Connected at;
    at.fill();
    auto const [path, bytes] = *at.server.files().begin();
    XQAParams other = plain_params();
    other.head_dim = 64;
    require_ok(at.world.service()->prepare(other));
    REQUIRE(at.server.files().size() == 2);
    // Another kernel's entry under the name of this one, signed as it is.
    for (auto const& [name, content] : at.server.files())
        if (name != path) at.server.put(path, content);
    at.forget();
    auto const service = at.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(counted(*service)["remote_refused"] == 1);
    CHECK(at.world.logged("key is ").size() == 1);
}

TEST_CASE("a remote's image that the driver refuses is compiled, kept here and put there", "[service][remote][J29]") {
    Connected const at;
    at.fill();
    std::string const before = at.server.files().begin()->second;
    at.world.cuda().fail_images(CUDA_ERROR_INVALID_IMAGE, CUDA_SUCCESS);
    require_ok(at.world.service()->prepare(plain_params()));
    CHECK(at.world.compiles() >= 2);
    CHECK(at.server.files().size() == 2);  // the PTX too
    at.world.cuda().fail_images(CUDA_SUCCESS, CUDA_SUCCESS);
    auto const service = at.world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(counted(*service)["hits"]["user"] == 1);
}

TEST_CASE("a server that is gone, or never answers, costs a compile and one warning", "[service][remote][J03][J22]") {
    Connected const at;
    ScriptedServer const silent([](Request const&, ScriptedServer::Connection const& client) { client.wait_for_client(); });
    at.world.set("XQAJIT_REMOTE_TIMEOUT", "50");
    std::size_t compiles = 0;
    for (std::string const& url : {silent.url(), "http://127.0.0.1:" + std::to_string(free_port()) + "/x"}) {
        at.world.set("XQAJIT_REMOTE_CACHE", url);
        at.forget();
        {
            auto const service = at.world.service();
            for (std::uint32_t const dim : {64u, 96u, 128u}) {
                XQAParams params = plain_params();
                params.head_dim = dim;
                require_ok(service->prepare(params));
                ++compiles;
            }
            CHECK(counted(*service)["remote_errors"] == 1);
        }
        CHECK(at.world.compiles() == compiles);
        CHECK(at.world.cache_files().size() == 3);
        CHECK(at.world.logged("does without its server for now: " + url).size() == 1);
    }
    CHECK(silent.requests() == 1);
}

TEST_CASE("without a compiler's identity no remote is asked, and the message is that of a miss", "[service][remote][J14]") {
    Connected const at;
    at.fill();
    at.world.set("XQAJIT_NVRTC_PATH", at.world.folder() + "/nowhere");
    std::size_t const asked = at.server.requests();
    Status const status = at.world.service()->prepare(plain_params());
    CHECK(status.code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(status.message(), "prewarm key"));
    CHECK(at.server.requests() == asked);
}

TEST_CASE("threads that want one kernel ask the remote for it once", "[service][remote][J24]") {
    Connected const at;
    at.fill();
    auto const service = at.world.service();
    CUcontext const context = at.world.enter(0);
    auto const cuda = must(driver::open_cuda());
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    std::size_t const asked = at.server.requests("GET");
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            bool const is_current = cuda->cuCtxSetCurrent(context) == CUDA_SUCCESS;
            if (!is_current || !service->prepare(plain_params()).ok()) ++failed;
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(failed == 0);
    CHECK(at.server.requests("GET") == asked + 1);
    CHECK(at.world.compiles() == 1);
}

TEST_CASE("prewarm fills a remote with what it compiles and with what is here, and takes what is there", "[service][remote][P07]") {
    Connected const at;
    json const cold = prewarm(*at.world.service());
    CHECK(cold["summary"]["compiled"] == 1);
    CHECK(cold["remote"] == json({{"stored", 1}, {"not_stored", 0}}));
    at.forget();
    CHECK(prewarm(*at.world.service())["summary"]["hits"] == 1);
    CHECK(at.server.requests("PUT") == 1);
    KeepingServer const empty;
    at.world.set("XQAJIT_REMOTE_CACHE", empty.url());
    CHECK(prewarm(*at.world.service())["remote"]["stored"] == 1);
    CHECK(prewarm(*at.world.service())["remote"]["stored"] == 0);
    CHECK(empty.files() == at.server.files());
    at.world.set("XQAJIT_REMOTE_CACHE_WRITE", "");
    CHECK(prewarm(*at.world.service())["remote"].is_null());
    CHECK(at.world.compiles() == 1);
}

TEST_CASE("explain and its like leave the remote alone, and cache_path and doctor show it without its secrets",
          "[service][remote]") {
    Connected const at;
    at.world.set("XQAJIT_REMOTE_CACHE", "http://ann:s3cret@" + at.server.url().substr(7));
    auto const service = at.world.service();
    std::size_t const asked = at.server.requests();
    XQAParams const params = plain_params();
    must(service->explain(params, nullptr, 1, 1));
    must(service->cache_explain_miss("", &params, nullptr));
    must(service->cache_list());
    CHECK(at.server.requests() == asked);
    for (std::string const& document : {must(service->cache_path()), must(service->doctor())}) {
        CHECK_FALSE(contains(document, "s3cret"));
        CHECK(json::parse(document)["remote"] == json({{"url", "http://***@" + at.server.url().substr(7)},
                                                       {"origin", "XQAJIT_REMOTE_CACHE"},
                                                       {"usable", true},
                                                       {"reachable", true},
                                                       {"writable", true},
                                                       {"key_file", "present"},
                                                       {"allow_unsigned", false},
                                                       {"reason", ""}}));
    }
    at.world.set("XQAJIT_CACHE_KEY_FILE", "");
    json const keyless = json::parse(must(at.world.service()->cache_path()))["remote"];
    CHECK(keyless["usable"] == false);
    CHECK(keyless["key_file"] == "unset");
    CHECK(contains(keyless["reason"], "XQAJIT_REMOTE_ALLOW_UNSIGNED"));
    at.world.set("XQAJIT_REMOTE_CACHE", "");
    CHECK(json::parse(must(at.world.service()->doctor()))["remote"].is_null());
    at.world.set("XQAJIT_REMOTE_CACHE", "ftp://ann:s3cret@host");
    Status const refused = Service::create("").status();
    CHECK(refused.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(refused.message(), "XQAJIT_REMOTE_CACHE is 'ftp://***@host': accepted is http://"));
}

}  // namespace xqajit
