// prepare_async() in captures, where it fails, beside a cache, and at the end of its service.
#include <signal.h>
#include <unistd.h>

#include "async_world.h"
#include "service/background.h"

namespace xqajit {

using namespace testing;
using nlohmann::json;

TEST_CASE("in a capture nothing falls back, loads or compiles, and the capture stays valid", "[service][async]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    Gate const gate(world);
    Launch launch(falling_back(), 1, 1);
    driver::Stream const stream = must(driver::Stream::create());
    auto const captured = [&] {
        Status status;
        driver::Graph const graph = must(driver::Graph::capture(stream.get(), [&]() -> Status {
            status = service->run(launch.params, launch.args, stream.get());
            return {};
        }));
        require_ok(graph.launch(stream.get()));
        CHECK(status.code() == XQAJIT_NOT_PREPARED);
        CHECK(contains(status.message(), "capturing"));
    };
    captured();
    CHECK(service->prepare_wait(falling_back(), 0).code() == XQAJIT_NOT_PREPARED);
    CHECK(world.compiles() == 0);
    require_ok(service->prepare_async(falling_back()));
    wait_until([&] { return service->run(launch.params, launch.args, nullptr).ok(); });
    captured();  // a graph would keep the fallback for ever
    CHECK(service->stats().launches == 1);
    gate.open();
    require_ok(service->prepare_wait(falling_back(), kLong));
}

TEST_CASE("a compile that fails in the background is told, and tried again when it is asked for again", "[service][async]") {
    World world;
    world.enter(0);
    World::set("FAKE_NVRTC_ONLY", "gmma/");
    World::set("FAKE_NVRTC_FAIL", "kernel.cu(1): error: no luck today");
    auto const service = world.service();
    XQAParams const no_fallback = [] {
        XQAParams params = falling_back();
        params.input_kv = 1;
        return params;
    }();
    for (XQAParams const& params : {falling_back(), no_fallback}) {
        require_ok(service->prepare_async(params));
        Status const status = service->prepare_wait(params, kLong);
        CHECK(status.code() == XQAJIT_COMPILE_FAILED);
        CHECK(contains(status.message(), "no luck today"));
    }
    CHECK(world.logged("was not prepared in the background").size() == 2);
    Launch launch(falling_back(), 1, 1), other(no_fallback, 1, 1);
    wait_until([&] { return service->run(launch.params, launch.args, nullptr).ok(); });  // mmha's may take a moment more
    std::size_t const compiles = world.compiles();
    for (int i = 0; i < 3; ++i) {
        require_ok(service->run(launch.params, launch.args, nullptr));
        CHECK(launched_mmha(world));
        CHECK(service->run(other.params, other.args, nullptr).code() == XQAJIT_COMPILE_FAILED);
    }
    CHECK(service->prepare_wait(falling_back(), 0).code() == XQAJIT_COMPILE_FAILED);
    CHECK(world.compiles() == compiles);
    World::set("FAKE_NVRTC_FAIL", "");
    require_ok(service->prepare_async(falling_back()));
    require_ok(service->prepare_wait(falling_back(), kLong));
    require_ok(service->run(launch.params, launch.args, nullptr));
    CHECK_FALSE(launched_mmha(world));
}

TEST_CASE("a kernel that the cache has is loaded without its fallback, else the fallback comes from there", "[service][async]") {
    World world;
    world.enter(0);
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    constexpr char kList[] = R"({"version": 1, "shapes": [{"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8,
        "head_dim": 128, "page_size": 64, "on_miss": "fallback"}]})";
    json const report = json::parse(must(world.service()->prewarm(kList, options)).json);
    CHECK(report["summary"]["compiled"] == 2);
    {
        auto const service = world.service();
        require_ok(service->prepare_async(falling_back()));
        require_ok(service->prepare_wait(falling_back(), kLong));
        CHECK(world.cuda().live_modules() == 1);
        CHECK(service->stats().disk_hits == 1);
    }
    for (json const& kernel : report["kernels"]) {
        std::string const key = kernel["key"];
        if (kernel["family"] != "gmma") continue;
        std::filesystem::remove_all(world.cache_dir() + "/" + key.substr(0, 2) + "/" + key.substr(0, key.find('/')));
    }
    auto const service = world.service();
    Gate const gate(world);
    Launch launch(falling_back(), 1, 1);
    require_ok(service->prepare_async(falling_back()));
    wait_until([&] { return service->run(launch.params, launch.args, nullptr).ok(); });
    CHECK(launched_mmha(world));
    CHECK(service->stats().disk_hits == 1);
    gate.open();
    require_ok(service->prepare_wait(falling_back(), kLong));
    CHECK(world.compiles() == 3);
}

TEST_CASE("a workspace serves the fallback too, and explain names it", "[service][async]") {
    World world;
    world.enter(0);
    auto const size = [&](char const* family, XQAParams const& params) {
        World::set("XQAJIT_FORCE_KERNEL", family);
        std::uint64_t const bytes = must(world.service()->workspace_size(params, 4, 4096));
        World::set("XQAJIT_FORCE_KERNEL", "");
        return bytes;
    };
    CHECK(size("", falling_back()) == std::max(size("gmma", plain_params()), size("mmha", plain_params())));
    auto const service = world.service();
    json const launch = json::parse(must(service->explain(falling_back(), nullptr, 1, 64)))["launch"];
    CHECK(launch["on_miss"] == "fallback");
    CHECK(launch["fallback"] == "mmha");
    json const plain = json::parse(must(service->explain(plain_params(), nullptr, 1, 64)))["launch"];
    CHECK(plain["on_miss"] == "compile");
    CHECK(plain["fallback"].is_null());
}

TEST_CASE("a service is destroyed whatever it has under way, and leaves nothing", "[service][async]") {
    enum class Busy { kWorker, kHere, kLocked };
    Busy const busy = GENERATE(Busy::kWorker, Busy::kHere, Busy::kLocked);
    World world;
    CUcontext const context = world.enter(0);
    std::jthread([] {}).join();  // a sanitizer begins a thread of its own with the first
    std::size_t const before = threads();
    std::size_t const held = world.cuda().allocated_bytes();
    auto const disk = cache::DiskStore::open({world.cache_dir(), "argument"});
    std::vector<cache::KeyLock> locks;
    {
        World::set("XQAJIT_COMPILE", busy == Busy::kWorker ? "worker" : "");
        auto const service = world.service();
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
            XQAParams params = falling_back();
            params.head_dim = head_dim;
            if (busy != Busy::kLocked) continue;
            json const key = json::parse(must(service->explain(params, nullptr, 1, 1)))["key"];
            CacheKey wanted;
            REQUIRE(Digest::parse(key["body"].get<std::string>(), wanted.body));
            REQUIRE(Digest::parse(key["compiler"]["id"].get<std::string>(), wanted.compiler));
            locks.push_back(disk->lock(wanted, {}));
        }
        if (busy == Busy::kWorker) World::set("FAKE_NVRTC_HANG", "1");
        if (busy == Busy::kHere) World::set("FAKE_NVRTC_DELAY_MS", "50");
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16) {
            XQAParams params = busy == Busy::kLocked ? plain_params() : falling_back();
            params.head_dim = head_dim;
            require_ok(service->prepare_async(params));
        }
        if (busy != Busy::kLocked) wait_until([&] { return world.compiles() >= 2; });
    }
    wait_until([&] { return threads() == before; });  // one that is joined is listed for a moment more
    CHECK(world.compiles() < 16);                     // what had not begun never did
    CHECK(world.cuda().live_modules() == 0);
    CHECK(world.cuda().allocated_bytes() == held);
    CHECK(world.logged("was not prepared").empty());
    if (busy != Busy::kLocked) CHECK(std::filesystem::is_empty(world.cache_dir() + "/locks"));
    if (busy == Busy::kWorker) {
        std::ifstream file(world.folder() + "/compiles");
        std::string target;
        pid_t worker = 0;
        while (file >> target >> worker) CHECK(::kill(worker, 0) != 0);
    }
    world.cuda().destroy_context(context);
}

TEST_CASE("the host's signal handlers never run in the service's threads", "[service][async]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    Gate const gate(world);
    require_ok(service->prepare_async(falling_back()));
    wait_until([&] { return world.compiles() >= 1; });
    std::size_t others = 0;
    for (auto const& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string const status = world.read(task.path().string() + "/status");
        std::size_t const line = status.find("SigBlk:\t");
        REQUIRE(line != std::string::npos);
        bool const blocks = ((std::stoull(status.substr(line + 8, 16), nullptr, 16) >> (SIGTERM - 1)) & 1) != 0;
        bool const is_main = task.path().filename() == std::to_string(::getpid());
        CHECK_FALSE((is_main && blocks));
        others += blocks;
    }
    CHECK(others >= 1);
}

TEST_CASE("threads that prepare, wait and launch at once share each kernel", "[service][async]") {
    World world;
    CUcontext const context = world.enter(0);
    World::set("FAKE_NVRTC_DELAY_MS", "5");
    auto const service = world.service();
    constexpr int kThreads = 8;
    std::vector<Status> results(kThreads);
    std::vector<Launch> launches;
    for (int i = 0; i < kThreads; ++i) {
        XQAParams params = falling_back();
        params.head_dim = 64 * static_cast<std::uint32_t>(1 + i % 4);
        launches.emplace_back(params, 1, 1);
    }
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < kThreads; ++i)
            threads.emplace_back([&, i] {
                Result<driver::ScopedContext> const scope = driver::ScopedContext::enter(context);
                results[i] = scope.ok() ? service->prepare_async(launches[i].params) : scope.status();
                while (results[i].ok()) {
                    Status const launched = service->run(launches[i].params, launches[i].args, nullptr);
                    if (!launched.ok() && launched.code() != XQAJIT_NOT_PREPARED) results[i] = launched;
                    if (service->prepare_wait(launches[i].params, 1).ok()) break;
                }
            });
    }
    for (Status const& result : results) require_ok(result);
    for (Launch const& launch : launches) {
        require_ok(service->run(launch.params, launch.args, nullptr));
        CHECK_FALSE(launched_mmha(world));
    }
    CHECK(world.compiles() <= 8);
    CHECK(service->stats().compiles == world.compiles());
}

}  // namespace xqajit
