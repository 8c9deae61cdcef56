// What a warm run() costs the host beyond the driver call that it ends in: the mean of 100 calls between two drains of the stream, the
// median of 200 such, run() against cuLaunchKernelEx of the kernel that it launches. Exit status: 0 measured, 1 failed, 3 no GPU.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "driver/cuda_functions.h"
#include "gpu/device_problem.h"
#include "gpu/problem.h"

namespace {

using namespace xqajit;

constexpr int kLaunches = 20000;
constexpr int kBatch = 100;  // launches between two drains: a full queue would make the host wait for the GPU

// A captured launch. The library keeps its kernels to itself: the graph's one node shows which kernel run() launches, and how.
class CapturedKernel {
public:
    static Result<CapturedKernel> capture(driver::CudaLibrary const& cuda, CUstream stream, std::function<Status()> const& launch) {
        CapturedKernel result;
        void* const library = dlopen("libcuda.so.1", RTLD_NOW);
        auto const get_nodes = library ? reinterpret_cast<decltype(&cuGraphGetNodes)>(dlsym(library, "cuGraphGetNodes")) : nullptr;
        auto const get_params =
            library ? reinterpret_cast<decltype(&cuGraphKernelNodeGetParams)>(dlsym(library, "cuGraphKernelNodeGetParams_v2"))
                    : nullptr;
        if (get_nodes == nullptr || get_params == nullptr)
            return unavailable("libcuda.so.1 has no cuGraphGetNodes or no cuGraphKernelNodeGetParams_v2");
        CUgraph graph = nullptr;
        if (CUresult const code = cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED); code != CUDA_SUCCESS)
            return driver::driver_error(cuda, "cuStreamBeginCapture", code);
        Status const launched = launch();
        if (CUresult const code = cuda.cuStreamEndCapture(stream, &graph); code != CUDA_SUCCESS)
            return driver::driver_error(cuda, "cuStreamEndCapture", code);
        XQAJIT_RETURN_IF_ERROR(launched);
        CUgraphNode node = nullptr;
        std::size_t count = 1;
        if (CUresult const code = get_nodes(graph, &node, &count); code != CUDA_SUCCESS)
            return driver::driver_error(cuda, "cuGraphGetNodes", code);
        if (CUresult const code = get_params(node, &result.params_); code != CUDA_SUCCESS)
            return driver::driver_error(cuda, "cuGraphKernelNodeGetParams", code);
        return result;  // the graph stays: it owns the parameters
    }

    CUresult launch(driver::CudaLibrary const& cuda, CUstream stream) const {
        CUlaunchConfig config{};
        config.gridDimX = params_.gridDimX;
        config.gridDimY = params_.gridDimY;
        config.gridDimZ = params_.gridDimZ;
        config.blockDimX = params_.blockDimX;
        config.blockDimY = params_.blockDimY;
        config.blockDimZ = params_.blockDimZ;
        config.sharedMemBytes = params_.sharedMemBytes;
        config.hStream = stream;
        return cuda.cuLaunchKernelEx(&config, params_.func, params_.kernelParams, params_.extra);
    }

private:
    CUDA_KERNEL_NODE_PARAMS params_{};
};

// Median over the batches of the mean host time of a call, in ns.
template <class Launch> Result<double> time_host(testing::Gpu const& gpu, Launch const& launch) {
    std::vector<double> ns;
    for (int batch = 0; batch < kLaunches / kBatch; ++batch) {
        auto const begin = std::chrono::steady_clock::now();
        for (int n = 0; n < kBatch; ++n) XQAJIT_RETURN_IF_ERROR(launch());
        std::chrono::duration<double, std::nano> const elapsed = std::chrono::steady_clock::now() - begin;
        XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
        ns.push_back(elapsed.count() / kBatch);
    }
    std::sort(ns.begin(), ns.end());
    return ns[ns.size() / 2];
}

Status measure() {
    Result<std::unique_ptr<testing::Gpu>> const opened = testing::Gpu::open();
    if (!opened.ok()) return opened.status();
    testing::Gpu const& gpu = **opened;
    Result<driver::CudaLibrary const*> const cuda = driver::open_cuda();
    if (!cuda.ok()) return cuda.status();
    // A kernel far shorter than its launch.
    testing::ProblemSpec spec;
    spec.params.q_dtype = XQAJIT_DTYPE_BF16;
    spec.params.num_q_heads = 8;
    spec.params.num_kv_heads = 1;
    spec.params.head_dim = 64;
    spec.params.page_size = 16;
    spec.lens = {16};
    Result<testing::DeviceProblem> problem = testing::DeviceProblem::upload(gpu, testing::build_case(spec));
    if (!problem.ok()) return problem.status();
    XQAJIT_RETURN_IF_ERROR(problem->prepare(gpu));
    XQAJIT_RETURN_IF_ERROR(problem->run(gpu));
    auto const warm_run = [&] { return problem->launch(gpu); };
    Result<CapturedKernel> const kernel = CapturedKernel::capture(**cuda, gpu.stream(), warm_run);
    if (!kernel.ok()) return kernel.status();
    auto const bare_launch = [&]() -> Status {
        CUresult const code = kernel->launch(**cuda, gpu.stream());
        return code == CUDA_SUCCESS ? Status() : driver::driver_error(**cuda, "cuLaunchKernelEx", code);
    };
    double run_ns = 0;
    double bare_ns = 0;
    // In turn, and each twice: the first round warms both.
    for (int round = 0; round < 2; ++round) {
        Result<double> const run = time_host(gpu, warm_run);
        if (!run.ok()) return run.status();
        Result<double> const bare = time_host(gpu, bare_launch);
        if (!bare.ok()) return bare.status();
        run_ns = *run;
        bare_ns = *bare;
    }
    fmt::print("host: run() {:.0f} ns, cuLaunchKernelEx {:.0f} ns, difference {:.0f} ns\n", run_ns, bare_ns, run_ns - bare_ns);
    return {};
}

}  // namespace

int main() {
    Status const status = measure();
    if (status.ok()) return 0;
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return status.code() == XQAJIT_UNAVAILABLE ? 3 : 1;
}
