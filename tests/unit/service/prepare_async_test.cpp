// prepare_async(), and what launches do meanwhile.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "service/background.h"
#include "unit/cache/fixture.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

constexpr std::uint32_t kLong = 200'000;  // ms: no test waits so long unless it fails

// Compiles of one family (gmma is the plain shape's) do not end while it lives. Declared after the service, whose end waits for them.
class Gate {
public:
    explicit Gate(World const& world, char const* sources = "gmma/") : path_(world.folder() + "/gate") {
        std::ofstream{path_};
        World::set("FAKE_NVRTC_ONLY", sources);
        World::set("FAKE_NVRTC_WHILE", path_);
    }
    ~Gate() { open(); }
    Gate(Gate const&) = delete;
    void open() const { std::filesystem::remove(path_); }

private:
    std::string path_;
};

XQAParams with(std::int32_t on_miss) {
    XQAParams params = plain_params();
    params.on_miss = on_miss;
    return params;
}
XQAParams falling_back() { return with(XQAJIT_ON_MISS_FALLBACK); }

template <class Condition> void wait_until(Condition const& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Status run(Service& service, Launch& launch, std::int32_t on_miss) {
    launch.params.on_miss = on_miss;
    return service.run(launch.params, launch.args, nullptr);
}

bool launched_mmha(World const& world) { return world.cuda().last_launch().dynamic_smem == 0; }

json metrics(Service& service) { return json::parse(must(service.metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON))); }

std::size_t threads() {
    std::filesystem::directory_iterator const tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace

TEST_CASE("prepare_async returns while the kernel is compiled, and prepare_wait when it is loaded", "[service][async]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    Gate const gate(world);
    CHECK(service->prepare_wait(plain_params(), kLong).code() == XQAJIT_NOT_PREPARED);  // nothing was begun: no wait
    for (int i = 0; i < 3; ++i) require_ok(service->prepare_async(plain_params()));
    for (std::uint32_t const limit : {0u, 20u}) {
        Status const status = service->prepare_wait(plain_params(), limit);
        CHECK(status.code() == XQAJIT_NOT_PREPARED);
        CHECK(contains(status.message(), std::to_string(limit) + " ms"));
    }
    gate.open();
    require_ok(service->prepare_wait(plain_params(), kLong));
    require_ok(service->prepare_wait(plain_params(), 0));
    require_ok(service->prepare_async(plain_params()));
    world.cuda().reset_calls();
    Launch launch(plain_params(), 2);
    launch.add_workspace(*service);
    require_ok(service->run(launch.params, launch.args, nullptr));
    CHECK(world.cuda().calls("cuModuleLoadDataEx") == 0);
    CHECK(world.compiles() == 1);
    CHECK(service->stats().memory_hits == 2);
    CHECK(metrics(*service)["fallbacks"] == 0);
}

TEST_CASE("what is known without a compile prepare_async returns at once", "[service][async]") {
    World world;
    auto const service = world.service();
    World::make_current(nullptr);
    CHECK(service->prepare_async(plain_params()).code() == XQAJIT_UNAVAILABLE);  // no context
    CHECK(service->prepare_wait(plain_params(), 0).code() == XQAJIT_UNAVAILABLE);
    world.enter(0);
    XQAParams bad = plain_params();
    bad.head_dim = 72;
    CHECK(service->prepare_async(bad).code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(service->prepare_wait(bad, 0).code() == XQAJIT_INVALID_ARGUMENT);
    XQAParams refused = plain_params();
    refused.non_causal = 1;
    CHECK(service->prepare_async(refused).code() == XQAJIT_UNSUPPORTED);
    CHECK(world.compiles() == 0);
}

TEST_CASE("until the kernel is ready a launch does what the policy says", "[service][async]") {
    World world;
    world.enter(0);
    bool const by_setting = GENERATE(false, true);
    auto const policy = [&](char const* name) { World::set("XQAJIT_ON_MISS", by_setting ? name : ""); };
    policy("fallback");
    auto const service = world.service();
    Gate const gate(world);
    XQAParams const shape = by_setting ? plain_params() : falling_back();
    Launch launch(shape, 1, 100);
    launch.add_workspace(*service);
    require_ok(service->prepare_async(shape));
    wait_until([&] { return world.cuda().live_modules() == 1; });  // mmha's, as gmma's is held up
    std::int32_t const none = XQAJIT_ON_MISS_DEFAULT;
    wait_until([&] { return run(*service, launch, by_setting ? none : XQAJIT_ON_MISS_FALLBACK).ok(); });
    CHECK(launched_mmha(world));
    std::uint64_t const fallbacks = metrics(*service)["fallbacks"];
    CHECK(fallbacks == 1);
    if (!by_setting) {
        Status const refused = run(*service, launch, XQAJIT_ON_MISS_REFUSE);
        CHECK(refused.code() == XQAJIT_NOT_PREPARED);
        CHECK(contains(refused.message(), "on_miss"));
    }
    CHECK(service->stats().launches == 1);
    std::jthread const opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gate.open();
    });
    if (by_setting)
        require_ok(service->prepare(shape));
    else
        require_ok(run(*service, launch, XQAJIT_ON_MISS_COMPILE));  // joins the compile that is under way
    require_ok(run(*service, launch, by_setting ? none : XQAJIT_ON_MISS_FALLBACK));
    CHECK_FALSE(launched_mmha(world));
    CHECK(world.compiles() == 2);
    CHECK(metrics(*service)["fallbacks"] == fallbacks);
    CHECK(service->stats().launches == (by_setting ? 2 : 3));
}

TEST_CASE("a launch that may fall back begins the compile itself, once, and never waits", "[service][async]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    Gate const gate(world, "");  // all families
    Launch launch(falling_back(), 1, 1);
    for (int i = 0; i < 5; ++i) {
        Status const status = service->run(launch.params, launch.args, nullptr);
        CHECK(status.code() == XQAJIT_NOT_PREPARED);
        CHECK(contains(status.message(), "its fallback, mmha, is not loaded"));
    }
    gate.open();
    require_ok(service->prepare_wait(falling_back(), kLong));
    require_ok(service->run(launch.params, launch.args, nullptr));
    CHECK_FALSE(launched_mmha(world));
    CHECK(world.compiles() <= 2);
}

TEST_CASE("what has no fallback is refused until it is ready, with the reason", "[service][async]") {
    World world;
    world.enter(0);
    bool const forced = GENERATE(false, true);
    World::set("XQAJIT_FORCE_KERNEL", forced ? "gmma" : "");
    auto const service = world.service();
    Gate const gate(world);
    XQAParams params = falling_back();
    if (!forced) params.input_kv = 1;  // not mmha's
    Launch launch(params, 1, 1);
    Status const status = service->run(params, launch.args, nullptr);
    CHECK(status.code() == XQAJIT_NOT_PREPARED);
    CHECK(contains(status.message(), "has no fallback"));
    gate.open();
    require_ok(service->prepare_wait(params, kLong));
    require_ok(service->run(params, launch.args, nullptr));
    CHECK(world.compiles() == 1);
}

TEST_CASE("a fallback is refused by rule under invariant division, whoever asks for either", "[service][async]") {
    World world;
    world.enter(0);
    for (bool const policy_by_setting : {false, true})
        for (bool const division_by_setting : {false, true}) {
            INFO(policy_by_setting << division_by_setting);
            World::set("XQAJIT_ON_MISS", policy_by_setting ? "fallback" : "");
            World::set("XQAJIT_DIVISION", division_by_setting ? "invariant" : "");
            auto const service = world.service();
            XQAParams params = policy_by_setting ? plain_params() : falling_back();
            if (!division_by_setting) params.division = XQAJIT_DIVISION_INVARIANT;
            Launch launch(params, 1, 1);
            for (Status const& status :
                 {service->prepare_async(params), service->prepare(params), service->run(params, launch.args, nullptr)}) {
                CHECK(status.code() == XQAJIT_UNSUPPORTED);
                CHECK(contains(status.message(), "common.on_miss"));
            }
            CHECK(service->stats().launches == 0);
        }
    CHECK(world.compiles() == 0);
}

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
