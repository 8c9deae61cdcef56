#include <algorithm>
#include <cmath>

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

TEST_CASE("the kernel gets strides in bytes, the shape's values and the plan", "[service]") {
    Running on;
    auto const service = on.world.service();
    XQAParams params = plain_params();
    params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    params.sliding_window = 100;
    params.sinks = params.lse = 1;
    Launch launch(params, 3, 2);
    RunArgs& args = launch.args;
    args.k_stride_page = 1 << 20;
    args.k_stride_token = 2048;
    args.k_stride_head = 256;
    args.v_page_table = launch.memory.as<std::int32_t>(16384);
    args.page_table_stride = 5;  // of a wider table, whose last row may end after two entries
    args.k_scale = 0.5f;
    args.v_scale = 2.0f;
    launch.add_workspace(*service);
    require_ok(service->run(params, args, nullptr));

    device::KernelArgs const got = last_args(on.world);
    CHECK(got.q == args.q);
    CHECK(got.k.base == args.k);
    CHECK(got.k.stride_page == 1 << 20);
    CHECK(got.k.stride_token == 2048);
    CHECK(got.k.stride_head == 256);
    CHECK(got.v.stride_head == 128);  // packed NHD
    CHECK(got.v.stride_token == 8 * 128);
    CHECK(got.v.stride_page == 64 * 8 * 128);
    CHECK(got.k.page_table == args.page_table);
    CHECK(got.v.page_table == args.v_page_table);
    CHECK(got.page_table_stride == 5);
    CHECK(got.max_pages == 2);
    CHECK(got.lse == args.lse);
    CHECK(got.sinks == args.sinks);
    CHECK(got.k_scale == 0.5f);
    CHECK(got.v_scale == 2.0f);
    CHECK(got.out_scale_rcp == 1.0f);
    CHECK(got.qk_scale == Approx(1 / std::sqrt(128.0)));
    CHECK(got.sliding_window == 100);
    CHECK(got.batch == 3);
    CHECK(got.num_kv_heads == 8);
    CHECK(device::divide(100, got.by_num_kv_heads) == 100 / 8);
    CHECK(device::divide(100, got.by_nb_row_blocks) == 100 / got.nb_row_blocks);
    CHECK(got.q_len == 1);
    CHECK(on.world.cuda().last_launch().grid[0] == (3 + got.nb_extra_parts) * 8 * got.nb_row_blocks);

    params.kv_dtype = XQAJIT_DTYPE_BF16;  // elements of two bytes
    Launch wide(params, 3, 2);
    wide.args.k_stride_page = 1 << 20;
    wide.args.k_stride_token = 2048;
    wide.args.k_stride_head = 256;
    wide.add_workspace(*service);
    require_ok(service->run(params, wide.args, nullptr));
    CHECK(last_args(on.world).k.stride_page == 2 << 20);
    CHECK(last_args(on.world).k.stride_head == 512);
    CHECK(last_args(on.world).v.page_table == wide.args.page_table);
}

TEST_CASE("the threshold of skipped tiles is a run-time value, and their counter an argument", "[service]") {
    Running on;
    on.world.set("XQAJIT_FORCE_KERNEL", "gmma");
    on.world.cuda().set_args_sizes({sizeof(device::KernelArgs), sizeof(device::TensorMap), sizeof(device::TensorMap)});
    auto const service = on.world.service();
    XQAParams params = plain_params();
    params.skip_softmax = 1;
    for (float const threshold : {0.5f, 1000.0f}) {
        params.skip_softmax_threshold = threshold;
        for (bool const counts : {false, true}) {
            Launch launch(params, 1, 1);
            if (counts) launch.args.skipped_tiles = launch.memory.as<std::uint64_t>(16384);
            launch.add_workspace(*service);
            require_ok(service->run(launch.params, launch.args, nullptr));
            CHECK(last_args(on.world).skip_threshold == threshold);
            CHECK(reinterpret_cast<std::uint64_t*>(last_args(on.world).skipped_tiles) == launch.args.skipped_tiles);
        }
    }
    CHECK(service->stats().compiles == 1);
}

TEST_CASE("with input_kv the kernel gets qkv as q, and the angles", "[service]") {
    Running on;
    on.world.set("XQAJIT_FORCE_KERNEL", "gmma");
    on.world.cuda().set_args_sizes({sizeof(device::KernelArgs), sizeof(device::TensorMap), sizeof(device::TensorMap)});
    XQAParams params = plain_params();
    params.input_kv = 1;
    params.rope_style = XQAJIT_ROPE_NEOX;
    Launch launch(params, 2, 2);
    launch.args.cos_sin = launch.memory.as<float>(4096);
    launch.args.qkv_stride_row = 8192;
    auto const service = on.world.service();
    launch.add_workspace(*service);
    require_ok(service->run(params, launch.args, nullptr));
    device::KernelArgs const got = last_args(on.world);
    CHECK(got.q == launch.args.qkv);
    CHECK(got.q_stride_row == 8192);
    CHECK(got.q_stride_head == 128);
    CHECK(got.cos_sin == launch.args.cos_sin);
}

TEST_CASE("a soft cap is a run-time value: another one is the same kernel, and reaches it", "[service][W42]") {
    Running on;
    auto const service = on.world.service();
    XQAParams params = plain_params();
    std::size_t compiles = 0;
    for (float const cap : {0.0f, 5.0f, 30.0f, 50.0f, 0.0f}) {
        params.softcap = cap;
        Launch launch(params, 1, 1);
        require_ok(service->run(params, launch.args, nullptr));
        CHECK(last_args(on.world).softcap == cap);
        if (cap == 0.0f)
            compiles = std::max<std::size_t>(compiles, 1);
        else
            compiles = 2;
        CHECK(on.world.compiles() == compiles);
    }
}

TEST_CASE("scales belong to 8-bit caches, and reach the kernel from host or device", "[service][W23]") {
    Running on;
    auto const service = on.world.service();
    Launch plain(plain_params(), 1, 1);
    plain.args.k_scale = 0.06f;
    plain.args.v_scale = 0.5f;
    Status const refused = service->run(plain.params, plain.args, nullptr);
    CHECK(refused.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(refused.message(), "k_scale"));
    CHECK(on.world.cuda().launches() == 0);

    for (std::int32_t const dtype : {XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8}) {
        XQAParams params = plain_params();
        params.kv_dtype = dtype;
        Launch launch(params, 1, 1);
        launch.args.k_scale = 0.5f;
        launch.args.v_scale = 2.0f;
        launch.args.v_scale_ptr = launch.memory.as<float>();
        require_ok(service->run(params, launch.args, nullptr));
        CHECK(last_args(on.world).k_scale == 0.5f);
        CHECK(last_args(on.world).v_scale == 2.0f);
        CHECK(last_args(on.world).k_scale_ptr == nullptr);
        CHECK(last_args(on.world).v_scale_ptr == launch.args.v_scale_ptr);
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
