// Kernels against the read roofline of the same process, and the host's cost of a launch.
#include <fmt/format.h>

#include <cmath>

#include "bench/bench_gpu_points.h"
#include "driver/cuda_functions.h"
#include "gpu/arguments.h"
#include "gpu/report.h"
#include "reference/codec.h"
#include "reference/reference.h"
#include "tools/measure/read_roofline.h"

namespace {

using namespace xqajit;
using namespace xqajit::bench;
using measure::ReadRoofline;
using measure::Timing;

constexpr char kUsage[] =
    "usage: xqajit_bench_gpu [--point PART] [--commit ID] [--json FILE]\n"
    "  --point PART  only points whose name contains it\n"
    "exit status: 0 measured, 1 a measurement failed, 2 usage, 3 no GPU";

constexpr char kProtocol[] =
    "Each point: KV in shuffled pages, as many copies as pass four times the L2 (two at least), one launch a copy in turn, "
    "captured in a CUDA graph of "
    "2 ms or more; the median of 24 replays divided by the launches. The read roofline is a kernel that loads as many bytes, 16 a "
    "load, in buffers as "
    "many, timed the same way, the best of four grids. Bytes are those of the visible K and V. Host cost: the mean of 100 calls "
    "between two drains of the "
    "stream, the median of 200 such, run() against cuLaunchKernelEx of the kernel that it launches.";

Point make_point(std::string name, std::uint32_t q_heads, std::uint32_t kv_heads, std::int32_t kv, std::uint32_t batch,
                 std::uint32_t len) {
    Point point{std::move(name), XQAJIT_PARAMS_INIT, batch, len};
    point.params.q_dtype = XQAJIT_DTYPE_BF16;
    point.params.kv_dtype = kv;
    point.params.num_q_heads = q_heads;
    point.params.num_kv_heads = kv_heads;
    point.params.head_dim = 128;
    point.params.page_size = 32;
    point.params = testing::with_defaults(point.params);
    return point;
}

std::vector<Point> all_points() {
    constexpr std::int32_t kBf16 = XQAJIT_DTYPE_BF16;
    std::vector<Point> points;
    // G = 1, 32 heads: 16 KiB of K and V a token.
    for (std::uint32_t const mib : {64U, 256U, 1024U})
        for (std::uint32_t const batch : {1U, 8U, 32U})
            points.push_back(make_point(fmt::format("mha-bf16-{}MiB-b{}", mib, batch), 32, 32, kBf16, batch, mib * 64 / batch));
    for (std::int32_t const kv : {kBf16, std::int32_t{XQAJIT_DTYPE_FP8_E4M3}, std::int32_t{XQAJIT_DTYPE_INT8}})
        points.push_back(make_point(fmt::format("gqa8-{}-b32-len4096", testing::name_of(kv)), 64, 8, kv, 32, 4096));
    for (std::int32_t const kv : {kBf16, std::int32_t{XQAJIT_DTYPE_FP8_E4M3}}) {
        Point mla = make_point(fmt::format("mla128-{}-b32-len4096", testing::name_of(kv)), 128, 1, kv, 32, 4096);
        mla.params.mla = 1;
        mla.params.head_dim = 576;
        mla.params.head_dim_v = 512;
        mla.params.page_size = 64;
        mla.params.qk_scale = 0.1352337788608801F;
        points.push_back(mla);
    }
    return points;
}

struct Measured {
    Timing kernel;
    Timing read;
    std::uint64_t bytes = 0;
    int copies = 0;
};

Result<Measured> measure_point(testing::Gpu const& gpu, ReadRoofline const& roofline, Point const& point, std::uint64_t l2_bytes) {
    Measured result;
    {
        Result<PointBuffers> const buffers = PointBuffers::make(gpu, point, l2_bytes);
        if (!buffers.ok()) return buffers.status();
        result.bytes = buffers->kv_bytes();
        result.copies = buffers->copies();
        Result<Timing> const timing =
            measure::time_rotated(gpu.stream(), result.copies, [&](int n) { return buffers->launch(gpu, n); });
        if (!timing.ok()) return timing.status();
        result.kernel = *timing;
    }
    Result<Timing> const read = roofline.measure(gpu.context(), gpu.stream(), result.bytes, result.copies);
    if (!read.ok()) return read.status();
    result.read = *read;
    return result;
}

int run(testing::Arguments const& arguments) {
    Result<std::unique_ptr<testing::Gpu>> gpu = testing::Gpu::open();
    if (!gpu.ok()) {
        std::fprintf(stderr, "%s\n", gpu.status().to_string().c_str());
        return 3;
    }
    driver::ContextInfo const& info = (*gpu)->context().info();
    Result<driver::CudaLibrary const*> const cuda = driver::open_cuda();
    Result<ReadRoofline> const roofline = ReadRoofline::compile((*gpu)->context());
    Result<std::uint64_t> const l2_bytes = measure::l2_bytes(info);
    for (Status const& status : {cuda.status(), roofline.status(), l2_bytes.status()})
        if (!status.ok()) {
            std::fprintf(stderr, "%s\n", status.to_string().c_str());
            return 1;
        }
    nlohmann::json document = {{"schema", "xqajit.gpu-bench/1"},
                               {"commit", arguments.text("--commit")},
                               {"version", xqajit_version()},
                               {"gpu", info.device_name},
                               {"gpu_uuid", info.device_uuid},
                               {"sm_count", info.arch.sm_count},
                               {"l2_bytes", *l2_bytes},
                               {"driver", driver::driver_version_text((*cuda)->version)},
                               {"nvrtc", roofline->nvrtc_version()},
                               {"protocol", kProtocol},
                               {"points", nlohmann::json::array()}};
    int failures = 0;
    fmt::print("{:<28} {:>10} {:>10} {:>10} {:>10} {:>9}\n", "point", "MiB", "us", "GB/s", "read GB/s", "fraction");
    for (Point const& point : all_points()) {
        if (point.name.find(arguments.text("--point")) == std::string::npos) continue;
        Result<Measured> const measured = measure_point(**gpu, *roofline, point, *l2_bytes);
        if (!measured.ok()) {
            fmt::print("{:<28} failed: {}\n", point.name, measured.status().to_string());
            ++failures;
            continue;
        }
        double const bytes = static_cast<double>(measured->bytes);
        double const speed = bytes / measured->kernel.us / 1e3;
        double const read = bytes / measured->read.us / 1e3;
        fmt::print("{:<28} {:>10.1f} {:>10.2f} {:>10.0f} {:>10.0f} {:>9.3f}\n", point.name, bytes / (1 << 20), measured->kernel.us,
                   speed, read, speed / read);
        document["points"].push_back({{"name", point.name},
                                      {"batch", point.batch},
                                      {"len", point.len},
                                      {"kv_bytes", measured->bytes},
                                      {"copies", measured->copies},
                                      {"us", measured->kernel.us},
                                      {"us_min", measured->kernel.min_us},
                                      {"us_max", measured->kernel.max_us},
                                      {"replays", measured->kernel.replays},
                                      {"launches", measured->kernel.launches},
                                      {"gb_per_s", speed},
                                      {"read_us", measured->read.us},
                                      {"read_gb_per_s", read},
                                      {"fraction_of_read", speed / read}});
    }
    if (arguments.text("--point").empty()) {
        Result<HostCost> const cost = measure_host_cost(**gpu);
        if (cost.ok()) {
            fmt::print("host: run() {:.0f} ns, cuLaunchKernelEx {:.0f} ns, difference {:.0f} ns\n", cost->run_ns, cost->bare_ns,
                       cost->run_ns - cost->bare_ns);
            document["host"] = {{"run_ns", cost->run_ns},
                                {"bare_launch_ns", cost->bare_ns},
                                {"overhead_ns", cost->run_ns - cost->bare_ns},
                                {"launches", cost->launches}};
        } else {
            fmt::print("host: failed: {}\n", cost.status().to_string());
            ++failures;
        }
    }
    if (Status const status = testing::write_json(arguments.text("--json"), document); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.message().c_str());
        ++failures;
    }
    return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    testing::Arguments arguments(argc, argv, {"--point", "--commit", "--json"}, {}, kUsage);
    if (arguments.ok() && !arguments.positional().empty()) arguments.fail("unexpected word " + arguments.positional().front());
    return arguments.ok() ? run(arguments) : 2;
}
