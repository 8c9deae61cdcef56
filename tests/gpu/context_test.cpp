// Contexts that go while the library holds kernels of theirs.
#include <dlfcn.h>

#include "driver/cuda_functions.h"
#include "gpu/fixture.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

using CreateContext = CUresult(CUcontext*, unsigned int, CUdevice);
using DestroyContext = CUresult(CUcontext);

// The driver's function under the name of its oldest version that still serves.
template <class Function> Function* driver_function(char const* name) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library != nullptr);
    auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
    INFO(name);
    REQUIRE(function != nullptr);
    return function;
}

driver::CudaLibrary const& cuda() {
    Result<driver::CudaLibrary const*> const library = driver::open_cuda();
    require_ok(library.status());
    return **library;
}

// A context of its own on the test's device, current until it is destroyed.
class OwnContext {
public:
    OwnContext() {
        REQUIRE(driver_function<CreateContext>("cuCtxCreate_v2")(&context_, 0, gpu().context().info().device) == CUDA_SUCCESS);
    }
    ~OwnContext() { destroy(); }
    OwnContext(OwnContext const&) = delete;
    // What CUDA frees with it: streams, modules, memory.
    void destroy() {
        if (context_ != nullptr) driver_function<DestroyContext>("cuCtxDestroy_v2")(context_);
        context_ = nullptr;
    }

private:
    CUcontext context_ = nullptr;
};

std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    REQUIRE(cuda().cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    return free;
}

// A launch as an engine makes it, of a shape that is split. Contiguous KV of one request, all zero bits: every output is zero.
class PlainLaunch {
public:
    PlainLaunch() {
        params_.q_dtype = XQAJIT_DTYPE_BF16;
        params_.num_q_heads = 8;
        params_.num_kv_heads = 2;
        params_.head_dim = 64;
        params_.division = XQAJIT_DIVISION_STATIC;
        params_.nb_sub_seq = 4;
    }

    // Prepares, runs and reads back. Stream and memory are left to the context's end, and so are `unfinished` launches behind.
    void run_in_current_context(xqajit_service* service, int unfinished = 0) {
        constexpr std::uint32_t kTokens = 1024;
        CUstream stream = nullptr;
        REQUIRE(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        CUdeviceptr const q = allocate(8 * 64 * 2, 0);
        CUdeviceptr const out = allocate(8 * 64 * 2, 0xFFFFFFFF);
        CUdeviceptr const kv = allocate(2 * kTokens * 64 * 2, 0);
        CUdeviceptr const lens = allocate(4, kTokens);
        require_ok(api(xqajit_prepare(service, &params_)));
        std::uint64_t bytes = 0;
        require_ok(api(xqajit_workspace_size(service, &params_, 1, kTokens, &bytes)));
        REQUIRE(bytes > 0);
        CUdeviceptr const workspace = allocate(bytes, 0xFFFFFFFF);
        xqajit_run_args args = XQAJIT_RUN_ARGS_INIT;
        args.batch = 1;
        args.capacity = kTokens;
        args.q = reinterpret_cast<void const*>(q);
        args.out = reinterpret_cast<void*>(out);
        args.k = args.v = reinterpret_cast<void const*>(kv);
        args.seq_lens = reinterpret_cast<std::int32_t const*>(lens);
        args.workspace = reinterpret_cast<void*>(workspace);
        args.workspace_size = bytes;
        REQUIRE(cuda().cuCtxSynchronize() == CUDA_SUCCESS);
        require_ok(api(xqajit_workspace_init(service, args.workspace, bytes, stream)));
        for (int n = 0; n < 3; ++n) require_ok(api(xqajit_run(service, &params_, &args, stream)));
        REQUIRE(cuda().cuCtxSynchronize() == CUDA_SUCCESS);
        std::vector<std::uint16_t> got(8 * 64, 1);
        REQUIRE(cuda().cuMemcpyDtoH(got.data(), out, got.size() * 2) == CUDA_SUCCESS);
        for (std::uint16_t const bits : got) REQUIRE((bits & 0x7FFF) == 0);
        for (int n = 0; n < unfinished; ++n) require_ok(api(xqajit_run(service, &params_, &args, stream)));
    }

private:
    static CUdeviceptr allocate(std::size_t bytes, std::uint32_t word) {
        CUdeviceptr address = 0;
        REQUIRE(cuda().cuMemAlloc(&address, bytes) == CUDA_SUCCESS);
        REQUIRE(cuda().cuMemsetD32Async(address, word, bytes / 4, nullptr) == CUDA_SUCCESS);
        return address;
    }
    xqajit_params params_ = XQAJIT_PARAMS_INIT;
};

}  // namespace

TEST_CASE("a context that is destroyed with kernels loaded leaves the next one whole, and nothing behind", "[gpu]") {
    gpu();  // a skip where there is no GPU
    xqajit_service* service = nullptr;
    require_ok(api(xqajit_create(nullptr, &service)));
    PlainLaunch launch;
    std::size_t after_first = 0;
    constexpr int kContexts = 20;
    for (int n = 0; n < kContexts; ++n) {
        OwnContext context;
        launch.run_in_current_context(service, n % 2 ? 200 : 0);
        context.destroy();
        // The first contexts set up what the driver keeps for the process.
        if (n == 1) after_first = free_bytes();
    }
    // A context that something kept alive holds a hundred megabytes and more; others may use the GPU meanwhile.
    CHECK(free_bytes() + (std::size_t{512} << 20) >= after_first);

    // The service outlives them all, and unloads where the contexts are gone already.
    {
        OwnContext context;
        launch.run_in_current_context(service);
        context.destroy();
        xqajit_destroy(service);
    }
    // The process's first context is as it was.
    require_right(make_spec({.q_heads = 8, .kv_heads = 2, .split = 4, .lens = {1000, 1}}));
}

TEST_CASE("destroying a service in one context leaves the kernels of another service in it", "[gpu]") {
    gpu();
    OwnContext context;
    xqajit_service* first = nullptr;
    xqajit_service* second = nullptr;
    require_ok(api(xqajit_create(nullptr, &first)));
    require_ok(api(xqajit_create(nullptr, &second)));
    PlainLaunch launch;
    launch.run_in_current_context(first);
    launch.run_in_current_context(second);
    xqajit_destroy(first);
    launch.run_in_current_context(second);
    xqajit_destroy(second);
}
