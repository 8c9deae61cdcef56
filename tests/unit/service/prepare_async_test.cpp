// prepare_async(), and what launches do meanwhile.
#include "async_world.h"
#include "service/background.h"

namespace xqajit {

using namespace testing;
using nlohmann::json;

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

}  // namespace xqajit
