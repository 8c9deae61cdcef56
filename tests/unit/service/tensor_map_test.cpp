// What a launch of gmma's hands to its kernel behind the arguments: the tensor maps of K and V.
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

struct RunningGmma : Running {
    RunningGmma() : Running({sizeof(device::KernelArgs), sizeof(device::TensorMap), sizeof(device::TensorMap)}) {
        world.set("XQAJIT_FORCE_KERNEL", "gmma");
    }
    FakeTensorMap map(std::size_t parameter) const {
        FakeCudaLaunch const launch = world.cuda().last_launch();
        REQUIRE(launch.args.size() == 3);
        return fake_tensor_map(launch.args[parameter].data());
    }
};

void check_map(FakeTensorMap const& map, void const* base, std::vector<std::uint64_t> const& dims,
               std::vector<std::uint64_t> const& strides, std::vector<std::uint32_t> const& box) {
    CHECK(map.address == reinterpret_cast<std::uint64_t>(base));
    CHECK(std::vector(map.dims, map.dims + 4) == dims);
    CHECK(std::vector(map.strides, map.strides + 3) == strides);
    CHECK(std::vector(map.box, map.box + 4) == box);
}

}  // namespace

TEST_CASE("gmma's kernels get the tensor maps of K and V behind their arguments", "[service]") {
    RunningGmma on;
    auto const service = on.world.service();
    struct Row {
        char const* what;
        void (*edit)(XQAParams&, RunArgs&);
        std::vector<std::uint64_t> dims, k_strides, v_strides;
        std::vector<std::uint32_t> box;
    };
    constexpr std::uint64_t kPages = 0x7fffffff;
    for (Row const &row : std::vector<Row>{
             {"packed",
              [](XQAParams&, RunArgs&) {},
              {128, 8, 64, kPages},
              {256, 2048, 131072},
              {256, 2048, 131072},
              {64, 1, 64, 1}},
             {"K of strides in elements, V packed",
              [](XQAParams&, RunArgs&a) { a.k_stride_page = 1 << 20, a.k_stride_token = 128, a.k_stride_head = 8192; },
              {128, 8, 64, kPages},
              {16384, 256, 2 << 20},
              {256, 2048, 131072},
              {64, 1, 64, 1}},
             {"8 bits",
              [](XQAParams&p, RunArgs&) { p.kv_dtype = XQAJIT_DTYPE_FP8_E4M3; },
              {128, 8, 64, kPages},
              {128, 1024, 65536},
              {128, 1024, 65536},
              {128, 1, 64, 1}},
             {"contiguous",
              [](XQAParams&p, RunArgs&a) { p.page_size = 0, a.page_table = nullptr, a.max_pages = 0, a.capacity = 100; },
              {128, 8, 100, 2},
              {256, 2048, 204800},
              {256, 2048, 204800},
              {64, 1, 64, 1}},
         }) {
        INFO(row.what);
        XQAParams params = plain_params();
        Launch launch(params, 2, 2);
        row.edit(params, launch.args);
        launch.params = params;
        launch.add_workspace(*service);
        require_ok(service->run(params, launch.args, nullptr));
        CHECK(last_args(on.world).k.base == launch.args.k);
        check_map(on.map(1), launch.args.k, row.dims, row.k_strides, row.box);
        check_map(on.map(2), launch.args.v, row.dims, row.v_strides, row.box);
    }
}

TEST_CASE("a launch that reads no KV needs no memory for it, and has no tensor map of it", "[service]") {
    RunningGmma on;
    auto const service = on.world.service();
    Launch launch(plain_params(), 2, 0);
    launch.args.k = launch.args.v = nullptr;
    launch.args.page_table = nullptr;
    require_ok(service->run(launch.params, launch.args, nullptr));
    CHECK(on.world.cuda().calls("cuTensorMapEncodeTiled") == 0);
    for (std::size_t const parameter : {1, 2}) check_map(on.map(parameter), nullptr, {0, 0, 0, 0}, {0, 0, 0}, {0, 0, 0, 0});
}

TEST_CASE("a stride or a driver that gives no tensor map fails the launch with a reason", "[service]") {
    RunningGmma on;
    auto const service = on.world.service();
    for (bool const of_k : {true, false}) {
        Launch launch(plain_params(), 2, 2);
        launch.add_workspace(*service);
        (of_k ? launch.args.k_stride_page : launch.args.v_stride_page) = std::int64_t{1} << 39;  // elements of two bytes
        (of_k ? launch.args.k_stride_token : launch.args.v_stride_token) = 1024;
        (of_k ? launch.args.k_stride_head : launch.args.v_stride_head) = 128;
        // Past what a page number may reach.
        Status const past = service->run(launch.params, launch.args, nullptr);
        CHECK(past.code() == XQAJIT_INVALID_ARGUMENT);
        launch.params.page_size = 0;
        launch.args.page_table = nullptr;
        launch.args.max_pages = 0;
        launch.args.capacity = 128;
        Status const status = service->run(launch.params, launch.args, nullptr);
        INFO(status.to_string());
        CHECK(status.code() == XQAJIT_UNSUPPORTED);
        CHECK(contains(status.message(), std::string(of_k ? "k" : "v") + "_stride_page is 1099511627776 bytes"));
    }
    CHECK(on.world.cuda().launches() == 0);

    Launch launch(plain_params(), 1, 1);
    on.world.cuda().fail("cuTensorMapEncodeTiled", CUDA_ERROR_INVALID_VALUE);
    Status const status = service->run(launch.params, launch.args, nullptr);
    CHECK(status.code() == XQAJIT_DRIVER_ERROR);
    CHECK(contains(status.message(), "cuTensorMapEncodeTiled (bf16 [128, 8, 64, 2147483647]"));
    CHECK(service->stats().launches == 0);
}

}  // namespace xqajit
