#include <array>
#include <optional>
#include <thread>

#include "fixture.h"
#include "kernel_src/common/contract.h"

namespace xqajit::driver {
namespace {

constexpr char kEntry[] = "xqajit_kernel";

Result<LoadedKernel> load(GpuContext const& context, std::vector<Image> const& images, std::uint32_t dynamic_smem = 0) {
    return LoadedKernel::load(context.info(), images, kEntry, dynamic_smem);
}

CUstreamCaptureMode thread_capture_mode() {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuda().cuThreadExchangeStreamCaptureMode(&mode);
    CUstreamCaptureMode const answer = mode;
    cuda().cuThreadExchangeStreamCaptureMode(&mode);
    return answer;
}

}  // namespace

TEST_CASE("the first image that loads is taken, and if none does the error has every reason", "[driver][J29]") {
    struct Row {
        char const* what;
        CUresult cubin, ptx;
        bool loads;
        int attempts;
    };
    Row const rows[] = {
        {"both load: the cubin", CUDA_SUCCESS, CUDA_SUCCESS, true, 1},
        {"the driver predates the PTX", CUDA_SUCCESS, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, true, 1},
        {"no native code for this device", CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_SUCCESS, true, 2},
        {"neither", CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, false, 2},
    };
    GpuContext const context = must(GpuContext::open(0));
    for (Row const& row : rows) {
        INFO(row.what);
        fake().fail_images(row.cubin, row.ptx);
        fake().reset_calls();
        Result<LoadedKernel> const kernel = load(context, {kCubin, kPtx});
        CHECK(kernel.ok() == row.loads);
        CHECK(fake().calls("cuModuleLoadDataEx") == row.attempts);
        if (row.loads) continue;
        Status const status = kernel.status();
        CHECK(status.code() == XQAJIT_DRIVER_ERROR);
        CHECK(contains(status.message(), "cubin: cuModuleLoadDataEx: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"));
        CHECK(contains(status.message(), "PTX: cuModuleLoadDataEx: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"));
        CHECK(contains(status.message(), kEntry));
        CHECK(contains(status.message(), "driver for CUDA 13.0"));
        CHECK(contains(status.detail(), "ptxas fatal: the fake driver refuses PTX"));
    }
    CHECK(fake().live_modules() == 0);
}

TEST_CASE("PTX needs no final zero: the driver sees the image's bytes and no more", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    std::string const file = ".version 8.3 and what follows in the file";
    REQUIRE(load(context, {Image{std::string_view(file).substr(0, 12), true}}).ok());
    CHECK(fake().last_ptx() == ".version 8.3");
}

TEST_CASE("an empty image and no image are refused before the driver sees them", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    CHECK(contains(load(context, {}).status().message(), "none was given"));
    CHECK(contains(load(context, {Image{"", false}, Image{"", true}}).status().message(),
                   "cubin: the image is empty; PTX: the image is empty"));
    CHECK(fake().calls("cuModuleLoadDataEx") == 0);
}

TEST_CASE("an image without the entry is unloaded and named, and the next image is tried", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    fake().fail("cuModuleGetFunction", CUDA_ERROR_NOT_FOUND);
    Status const status = load(context, {kCubin, kPtx}).status();
    INFO(status.message());
    CHECK(contains(status.message(),
                   "cubin: cuModuleGetFunction (xqajit_kernel): CUDA_ERROR_NOT_FOUND (500): named symbol not found"));
    CHECK(contains(status.message(), "PTX: cuModuleGetFunction (xqajit_kernel)"));
    CHECK(fake().calls("cuModuleLoadDataEx") == 2);
    CHECK(fake().live_modules() == 0);
}

TEST_CASE("loading and unloading leave another thread's capture valid and this thread's mode as it was", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    Stream const stream = must(Stream::create());
    REQUIRE(cuda().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    for (CUstreamCaptureMode mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
        for (bool loads : {true, false}) {
            std::thread([&] {
                CUstreamCaptureMode set = mode;
                cuda().cuThreadExchangeStreamCaptureMode(&set);
                CUresult const told = loads ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
                fake().fail_images(told, told);
                CHECK(load(context, {kCubin}).ok() == loads);  // loaded, then unloaded
                CHECK(thread_capture_mode() == mode);
            }).join();
        }
    }
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    REQUIRE(cuda().cuStreamIsCapturing(stream.get(), &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    // The fake does forbid it otherwise.
    std::thread([&] {
        CUmodule module = nullptr;
        ScopedContext const scope = must(ScopedContext::enter(context.info().context));
        CHECK(cuda().cuModuleLoadDataEx(&module, "image", 0, nullptr, nullptr) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }).join();
}

TEST_CASE("a kernel loads into the context it is asked for, whatever is current", "[driver][J19]") {
    fake().set_devices("12.0,8.6");
    GpuContext const first = must(GpuContext::open(0));
    CUcontext const other = fake().create_context(1);
    ContextInfo info;
    {
        ScopedContext const scope = must(ScopedContext::enter(other));
        info = *must(current_context());
    }
    LoadedKernel const kernel = must(LoadedKernel::load(info, std::array{kCubin}, kEntry, 0));
    ScopedContext const scope = must(ScopedContext::enter(other));
    REQUIRE(launch(kernel, {}, {}, nullptr).ok());
    CHECK(fake().last_launch().context == other);
}

TEST_CASE("dynamic shared memory is opted in to by the context's own device's limit", "[driver]") {
    struct Row {
        std::uint32_t dynamic;
        int fixed;
        bool opts_in;
    };
    Row const rows[] = {{0, 0, false},
                        {48 * 1024, 0, false},
                        {48 * 1024 + 16, 0, true},
                        {48 * 1024 - 512, 512, false},
                        {48 * 1024 - 496, 512, true},
                        {101376, 0, true},
                        {101376 - 1024, 1024, true}};
    fake().set_devices("9.0,8.6");
    std::vector<GpuContext> contexts;
    for (int device : {0, 1}) {
        contexts.push_back(must(GpuContext::open(device)));
        for (Row const& row : rows) {
            INFO("device " << device << ", " << row.dynamic << " + " << row.fixed);
            fake().set_static_smem(row.fixed);
            fake().reset_calls();
            LoadedKernel const kernel = must(load(contexts.back(), {kCubin}, row.dynamic));
            CHECK(fake().calls("cuFuncSetAttribute") == (row.opts_in ? 1 : 0));
            LaunchConfig config;
            config.dynamic_smem = row.dynamic;
            CHECK(launch(kernel, config, {}, nullptr).ok());
        }
    }
    // What 9.0 holds, 8.6 refuses with need and limit, and keeps nothing loaded.
    fake().set_static_smem(1024);
    {
        ScopedContext const scope = must(ScopedContext::enter(contexts[0].info().context));
        CHECK(load(contexts[0], {kCubin}, 101376).ok());
    }
    Status const status = load(contexts[1], {kCubin, kPtx}, 101376).status();
    CHECK(status.code() == XQAJIT_UNSUPPORTED);
    CHECK(status.message() ==
          "the kernel needs 102400 bytes of shared memory a block (1024 static, 101376 dynamic): device 1 (Fake GPU 1 (8.6)) has "
          "101376");
    CHECK(fake().live_modules() == 0);
    while (!contexts.empty()) contexts.pop_back();  // in reverse order, as scopes would
}

TEST_CASE("a kernel is unloaded once, in its context, also when moved", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    {
        LoadedKernel kernel = must(load(context, {kCubin}));
        LoadedKernel const moved = std::move(kernel);
        CHECK(fake().live_modules() == 1);
        REQUIRE(cuda().cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
    }
    CHECK(fake().live_modules() == 0);
    CHECK(fake().calls("cuModuleUnload") == 1);
}

TEST_CASE("a kernel whose context has died goes quietly", "[driver]") {
    struct Row {
        char const* what;
        bool destroyed, address_reused;
        CUresult answer;  // of every function that the destructor might ask
    };
    Row const rows[] = {
        {"destroyed", true, false, CUDA_SUCCESS},
        {"destroyed, its address a new context's", true, true, CUDA_SUCCESS},
        {"driver shutting down", false, false, CUDA_ERROR_DEINITIALIZED},
        {"said to be destroyed", false, false, CUDA_ERROR_CONTEXT_IS_DESTROYED},
    };
    for (Row const& row : rows) {
        INFO(row.what);
        CUcontext const context = fake().create_context(0);
        REQUIRE(cuda().cuCtxSetCurrent(context) == CUDA_SUCCESS);
        std::optional<LoadedKernel> kernel(must(LoadedKernel::load(*must(current_context()), std::array{kCubin}, kEntry, 0)));
        REQUIRE(cuda().cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
        if (row.destroyed) fake().destroy_context(context);
        if (row.address_reused) REQUIRE(fake().create_context(0) == context);
        char const* const functions[] = {"cuCtxGetId", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuModuleUnload"};
        for (char const* function : functions) fake().fail(function, row.answer);
        fake().reset_calls();
        kernel.reset();
        CHECK(fake().calls("cuModuleUnload") == 0);
        for (char const* function : functions) fake().fail(function, CUDA_SUCCESS);
        CUcontext current = nullptr;
        REQUIRE(cuda().cuCtxGetCurrent(&current) == CUDA_SUCCESS);
        CHECK(current == nullptr);
        fake().destroy_context(context);
    }
}

TEST_CASE("a launch hands over grid, block, shared memory, stream and the bytes of each parameter", "[driver]") {
    struct Args {
        std::uint64_t pointer;
        std::uint32_t values[5];
    } args{0x123456789abcdef0, {1, 2, 3, 4, 5}};
    device::TensorMap k{{1, 2, 3}}, v{{4, 5, 6}};
    void* parameters[] = {&args, &k, &v};
    std::size_t const sizes[] = {sizeof args, sizeof k, sizeof v};
    GpuContext const context = must(GpuContext::open(0));
    Stream const stream = must(Stream::create());
    LoadedKernel const kernel = must(load(context, {kCubin}, 65536));
    std::uint64_t launches = 0;
    for (std::size_t const count : {std::size_t{1}, std::size_t{3}})
        for (auto const& [pdl, cluster] : {std::pair{false, 1u}, {true, 1u}, {false, 2u}, {true, 8u}}) {
            fake().set_args_sizes({sizes, sizes + count});
            REQUIRE(launch(kernel, {136, 256, 65536, pdl, cluster}, std::span(parameters, count), stream.get()).ok());
            FakeCudaLaunch const seen = fake().last_launch();
            CHECK(seen.cluster_x == cluster);
            CHECK(std::vector(seen.grid, seen.grid + 3) == std::vector<std::uint32_t>{136, 1, 1});
            CHECK(std::vector(seen.block, seen.block + 3) == std::vector<std::uint32_t>{256, 1, 1});
            CHECK(seen.dynamic_smem == 65536);
            CHECK(seen.pdl == pdl);
            CHECK(seen.stream == stream.get());
            CHECK(seen.function == kernel.function());
            REQUIRE(seen.args.size() == count);
            for (std::size_t i = 0; i < count; ++i) {
                auto const* const bytes = static_cast<unsigned char const*>(parameters[i]);
                CHECK(seen.args[i] == std::vector<unsigned char>(bytes, bytes + sizes[i]));
            }
            CHECK(fake().launches() == ++launches);
        }
    fake().reset_calls();
    REQUIRE(launch(kernel, {1, 32, 0, false}, parameters, stream.get()).ok());
    CHECK(fake().total_calls() == 1);  // the launch alone
}

TEST_CASE("a failed launch says what was launched and why it failed", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    LoadedKernel const kernel = must(load(context, {kCubin}));
    CHECK(
        launch(kernel, {1, 2048, 0, false}, {}, nullptr).message() ==
        "cuLaunchKernelEx (grid 1, block 2048, 0 bytes of dynamic shared memory): CUDA_ERROR_INVALID_VALUE (1): invalid argument");
    CHECK(launch(kernel, {7, 128, 0, false, 8}, {}, nullptr).message().find("grid 7, block 128, clusters of 8, 0 bytes") !=
          std::string::npos);
    fake().fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    Status const status = launch(kernel, {7, 128, 1024, false}, {}, nullptr);
    CHECK(status.code() == XQAJIT_DRIVER_ERROR);
    CHECK(status.message() ==
          "cuLaunchKernelEx (grid 7, block 128, 1024 bytes of dynamic shared memory): "
          "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701): too many resources requested for launch");
}

}  // namespace xqajit::driver
