#include <cmath>

#include "world.h"

namespace xqajit {

using namespace testing;

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

}  // namespace xqajit
