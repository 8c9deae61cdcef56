#include <cstddef>
#include <span>

#include "world.h"

namespace xqajit {

using namespace testing;

TEST_CASE("a warm launch asks the driver for the context, its id, gmma's tensor maps and the launch alone", "[service]") {
    for (auto const& [family, maps] : {std::pair{"gmma", 2}, {"hmma", 0}, {"mmha", 0}}) {
        INFO(family);
        Running on;
        on.world.set("XQAJIT_FORCE_KERNEL", family);
        auto const service = on.world.service();
        Launch launch(plain_params(), 4);
        launch.add_workspace(*service);
        require_ok(service->run(launch.params, launch.args, nullptr));
        on.world.cuda().reset_calls();
        require_ok(service->run(launch.params, launch.args, nullptr));
        CHECK(on.world.cuda().calls("cuLaunchKernelEx") == 1);
        CHECK(on.world.cuda().calls("cuTensorMapEncodeTiled") == maps);
        CHECK(on.world.cuda().calls("cuStreamGetCtx") == 1);
        CHECK(on.world.cuda().calls("cuCtxGetId") == 1);
        CHECK(on.world.cuda().calls("cuCtxGetCurrent") <= 1);
        CHECK(on.world.cuda().total_calls() <= 4 + maps);
        CHECK(service->stats().memory_hits == 1);
        CHECK(service->stats().launches == 2);
    }
}

TEST_CASE("a batch of zero succeeds without a launch, and still judges the shape", "[service][C20]") {
    Running on;
    auto const service = on.world.service();
    RunArgs args = XQAJIT_RUN_ARGS_INIT;
    require_ok(service->run(plain_params(), args, nullptr));
    driver::Stream const stream = must(driver::Stream::create());
    driver::Graph const graph =
        must(driver::Graph::capture(stream.get(), [&] { return service->run(plain_params(), args, stream.get()); }));
    require_ok(graph.launch(stream.get()));
    CHECK(on.world.cuda().launches() == 0);
    CHECK(on.world.compiles() == 0);
    XQAParams bad = plain_params();
    bad.head_dim = 72;
    CHECK(service->run(bad, args, nullptr).code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("a capture takes a prepared launch, and survives the refusal of another", "[service]") {
    Running on;
    auto const service = on.world.service();
    XQAParams other = plain_params();
    other.head_dim = 64;
    Launch prepared(plain_params(), 2);
    Launch unprepared(other, 2);
    prepared.add_workspace(*service);
    require_ok(service->prepare(plain_params()));
    driver::Stream const stream = must(driver::Stream::create());
    Status refused;
    driver::Graph const graph = must(driver::Graph::capture(stream.get(), [&]() -> Status {
        refused = service->run(unprepared.params, unprepared.args, stream.get());
        Status const init = service->workspace_init(prepared.args.workspace, prepared.args.workspace_size, stream.get());
        CHECK(init.code() == XQAJIT_INVALID_ARGUMENT);
        return service->run(prepared.params, prepared.args, stream.get());
    }));
    CHECK(refused.code() == XQAJIT_NOT_PREPARED);
    CHECK(contains(refused.message(), "capturing"));
    CHECK(on.world.compiles() == 1);
    CHECK(on.world.cuda().launches() == 0);
    require_ok(graph.launch(stream.get()));
    require_ok(graph.launch(stream.get()));
    CHECK(on.world.cuda().launches() == 2);
}

TEST_CASE("another thread's capture survives a prepare", "[service]") {
    Running on;
    auto const service = on.world.service();
    driver::Stream const stream = must(driver::Stream::create());
    driver::Graph const graph = must(driver::Graph::capture(stream.get(), [&] { return service->prepare(plain_params()); }));
    require_ok(graph.launch(stream.get()));
}

TEST_CASE("XQAJIT_ON_MISS=refuse: a launch never compiles", "[service]") {
    Running on;
    on.world.set("XQAJIT_ON_MISS", "refuse");
    auto const service = on.world.service();
    Launch launch(plain_params(), 1, 1);
    Status const refused = service->run(launch.params, launch.args, nullptr);
    CHECK(refused.code() == XQAJIT_NOT_PREPARED);
    CHECK(contains(refused.message(), "XQAJIT_ON_MISS"));
    CHECK(on.world.compiles() == 0);
    require_ok(service->prepare(launch.params));
    require_ok(service->run(launch.params, launch.args, nullptr));
}

TEST_CASE("an unprepared launch compiles by default", "[service]") {
    Running on;
    auto const service = on.world.service();
    Launch launch(plain_params(), 1, 1);
    require_ok(service->run(launch.params, launch.args, nullptr));
    CHECK(on.world.compiles() == 1);
    CHECK(on.world.cuda().launches() == 1);
}

TEST_CASE("programmatic dependent launch: the shape's wish, the setting's word, the arch's ability", "[service]") {
    struct Row {
        char const* device;
        int asked;
        char const* setting;
        bool launched;
    };
    for (Row const& row : {Row{"9.0", 0, "", false}, Row{"9.0", 1, "", true}, Row{"9.0", 0, "on", true},
                           Row{"9.0", 1, "off", false}, Row{"8.0", 1, "", false}, Row{"8.0", 1, "on", false}}) {
        INFO(row.device << " " << row.asked << " " << row.setting);
        World world;
        world.cuda().set_devices(row.device);
        world.enter(0);
        world.set("XQAJIT_PDL", row.setting);
        auto const service = world.service();
        XQAParams params = plain_params();
        params.pdl = row.asked;
        Launch launch(params, 1, 1);
        require_ok(service->run(params, launch.args, nullptr));
        CHECK(world.cuda().last_launch().pdl == row.launched);
    }
}

TEST_CASE("a plan with clusters is launched with them, and needs no workspace for one part", "[service]") {
    struct Row {
        char const* family;
        std::uint32_t pages;  // of 64 tokens
        std::uint32_t cluster;
        bool one_part;
    };
    for (Row const& row : {Row{"hmma", 16, 8, true},
                           {"hmma", 128, 1, false},
                           {"gmma", 2, 1, true},
                           {"gmma", 4, 2, true},
                           {"gmma", 8, 4, true},
                           {"gmma", 16, 8, true},
                           {"gmma", 128, 2, false}}) {
        INFO(row.family << ", " << row.pages << " pages");
        Running on;
        on.world.set("XQAJIT_FORCE_KERNEL", row.family);
        auto const service = on.world.service();
        Launch launch(plain_params(), 1, row.pages);
        launch.add_workspace(*service);
        require_ok(service->run(launch.params, launch.args, nullptr));
        CHECK(on.world.cuda().last_launch().cluster_x == row.cluster);
        CHECK(last_args(on.world).cluster_size == row.cluster);
        CHECK((last_args(on.world).nb_slots == 0) == row.one_part);
    }
}

TEST_CASE("forced division and sub-sequences reach the plan", "[service]") {
    Running on;
    XQAParams params = plain_params();
    on.world.set("XQAJIT_FORCE_KERNEL", "hmma");
    std::uint32_t const tokens = 128 * 64;  // past what its clusters take
    auto const launched = [&] {
        auto const service = on.world.service();
        Launch launch(params, 1, tokens / 64);
        launch.add_workspace(*service);
        require_ok(service->run(params, launch.args, nullptr));
        return last_args(on.world);
    };
    device::KernelArgs const chosen = launched();
    CHECK(chosen.division == device::Division::kBalanced);
    CHECK(chosen.nb_extra_parts > 0);
    CHECK(chosen.nb_slots == 2 * chosen.nb_extra_parts * 8 * chosen.nb_row_blocks);
    on.world.set("XQAJIT_NB_SUB_SEQ", "7");
    CHECK(launched().nb_sub_seq == 7);
    CHECK(launched().division == device::Division::kStatic);
    on.world.set("XQAJIT_NB_SUB_SEQ", "");
    on.world.set("XQAJIT_DIVISION", "invariant");
    CHECK(launched().division == device::Division::kInvariant);
    CHECK(launched().tokens_per_sub_seq == kInvariantTokens);
    on.world.set("XQAJIT_DIVISION", "static");
    params.division = XQAJIT_DIVISION_INVARIANT;  // the setting wins
    CHECK(launched().division == device::Division::kStatic);
    CHECK(launched().nb_extra_parts == 0);
    on.world.set("XQAJIT_DIVISION", "balanced");
    CHECK(launched().division == device::Division::kBalanced);
    CHECK(launched().nb_extra_parts == chosen.nb_extra_parts);
}

TEST_CASE("a kernel that needs more shared memory than a launch has by default is loaded for it", "[service]") {
    for (char const* device : {"8.0", "8.6", "9.0", "12.0"}) {
        INFO(device);
        World world;
        world.cuda().set_devices(device);
        world.enter(0);
        auto const service = world.service();
        for (std::uint32_t const head_dim : {64u, 128u, 256u}) {
            XQAParams params = plain_params();
            params.head_dim = head_dim;
            params.num_q_heads = 128;
            for (std::uint32_t const batch : {1u, 128u}) {
                Launch launch(params, batch, 2);
                launch.add_workspace(*service);
                require_ok(service->run(params, launch.args, nullptr));
            }
        }
    }
}

TEST_CASE("XQAJIT_DEBUG: lengths on the device are checked before the launch", "[service]") {
    Running on;
    on.world.set("XQAJIT_DEBUG", "1");
    auto const service = on.world.service();
    Launch launch(plain_params(), 3, 2);  // 128 tokens
    auto const run_with = [&](std::vector<std::int32_t> const& lengths) {
        require_ok(launch.lengths.upload(std::as_bytes(std::span(lengths))));
        return service->run(launch.params, launch.args, nullptr);
    };
    require_ok(run_with({0, 1, 128}));
    CHECK(on.world.cuda().launches() == 1);
    CHECK(contains(run_with({0, 129, 1}).message(), "seq_lens[1] is 129: the KV memory holds 128"));
    CHECK(contains(run_with({0, 1, -5}).message(), "seq_lens[2] is -5"));
    launch.args.max_len = 100;
    CHECK(contains(run_with({0, 1, 101}).message(), "max_len is 100"));
    CHECK(on.world.cuda().launches() == 1);

    // Captured launches can't be looked into.
    driver::Stream const stream = must(driver::Stream::create());
    driver::Graph const graph =
        must(driver::Graph::capture(stream.get(), [&] { return service->run(launch.params, launch.args, stream.get()); }));
    require_ok(graph.launch(stream.get()));
}

TEST_CASE("a driver's refusal of a launch is returned", "[service][W14]") {
    Running on;
    auto const service = on.world.service();
    Launch launch(plain_params(), 1, 1);
    require_ok(service->prepare(launch.params));
    on.world.cuda().fail("cuLaunchKernelEx", CUDA_ERROR_INVALID_VALUE);
    Status const status = service->run(launch.params, launch.args, nullptr);
    CHECK(status.code() == XQAJIT_DRIVER_ERROR);
    CHECK(contains(status.message(), "CUDA_ERROR_INVALID_VALUE"));
    CHECK(service->stats().launches == 0);
}

}  // namespace xqajit
