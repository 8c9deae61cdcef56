#include "tools/measure/timing.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "driver/cuda_functions.h"
#include "driver/device_memory.h"

namespace xqajit::measure {
namespace {

constexpr int kReplays = 24;
constexpr int kWarmUp = 3;
constexpr double kGraphUs = 2000;  // a graph this long makes its own start negligible
constexpr int kMaxLaunches = 400;
constexpr std::chrono::milliseconds kPause{
    200};  // after 100 ms of load some kernels run into the power cap, and so would the next one

Result<Timing> time_graph(CUstream stream, int launches, std::function<Status(int)> const& launch) {
    Result<driver::Graph> const graph = driver::Graph::capture(stream, [&]() -> Status {
        for (int n = 0; n < launches; ++n) XQAJIT_RETURN_IF_ERROR(launch(n));
        return {};
    });
    if (!graph.ok()) return graph.status();
    Result<driver::Event> const begin = driver::Event::create();
    Result<driver::Event> const end = driver::Event::create();
    if (!begin.ok()) return begin.status();
    if (!end.ok()) return end.status();
    std::vector<double> us;
    for (int n = 0; n < kWarmUp + kReplays; ++n) {
        XQAJIT_RETURN_IF_ERROR(begin->record(stream));
        XQAJIT_RETURN_IF_ERROR(graph->launch(stream));
        XQAJIT_RETURN_IF_ERROR(end->record(stream));
        Result<float> const ms = end->elapsed_ms_since(*begin);
        if (!ms.ok()) return ms.status();
        if (n >= kWarmUp) us.push_back(*ms * 1e3 / launches);
    }
    std::sort(us.begin(), us.end());
    return Timing{us[us.size() / 2], us.front(), us.back(), kReplays, launches};
}

}  // namespace

Result<std::uint64_t> l2_bytes(driver::ContextInfo const& context) {
    Result<driver::CudaLibrary const*> const cuda = driver::open_cuda();
    if (!cuda.ok()) return cuda.status();
    int bytes = 0;
    CUresult const result = (*cuda)->cuDeviceGetAttribute(&bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, context.device);
    if (result != CUDA_SUCCESS) return driver::driver_error(**cuda, "cuDeviceGetAttribute", result);
    return static_cast<std::uint64_t>(bytes);
}

int copies_past_l2(std::uint64_t bytes, std::uint64_t l2_bytes) {
    if (bytes == 0) return 1;
    return static_cast<int>(std::clamp<std::uint64_t>((4 * l2_bytes + bytes - 1) / bytes, 1, 64));
}

Result<Timing> time_rotated(CUstream stream, int copies, std::function<Status(int n)> const& launch) {
    std::this_thread::sleep_for(kPause);
    Result<Timing> const first = time_graph(stream, copies, launch);
    if (!first.ok()) return first.status();
    int const wanted = std::clamp(static_cast<int>(kGraphUs / std::max(first->us, 1.0)) + 1, copies, kMaxLaunches);
    return time_graph(stream, (wanted + copies - 1) / copies * copies, launch);
}

}  // namespace xqajit::measure
