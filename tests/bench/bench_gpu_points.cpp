#include "bench/bench_gpu_points.h"

#include <algorithm>
#include <numeric>

#include "base/settings.h"
#include "bench/read_kernel.h"
#include "gpu/draw.h"
#include "jit/compile_job.h"
#include "reference/codec.h"

namespace xqajit::bench {
namespace {

constexpr int kReplays = 24;
constexpr double kGraphUs = 2000;  // a graph this long makes its own start negligible

// Repeats a megabyte of Gaussian elements over the buffer: finite, and not so regular as to spare the memory.
Status fill_random(driver::DeviceBuffer const& buffer, std::int32_t dtype, std::uint64_t seed) {
    constexpr std::uint64_t kChunk = 1 << 20;
    testing::Random random(seed);
    std::vector<std::uint8_t> chunk(kChunk);
    testing::GaussianFill const fill(dtype, dtype == XQAJIT_DTYPE_INT8 ? 30 : 1);
    fill.fill(random, chunk.data(), 0, static_cast<std::uint32_t>(kChunk / testing::bytes_of(dtype)));
    for (std::uint64_t at = 0; at < buffer.bytes(); at += kChunk)
        XQAJIT_RETURN_IF_ERROR(buffer.upload(std::as_bytes(std::span(chunk)).first(std::min(kChunk, buffer.bytes() - at)), at));
    return {};
}

int launches_for(double one_us, int copies) {
    int const wanted = static_cast<int>(kGraphUs / std::max(one_us, 1.0)) + 1;
    return (std::clamp(wanted, copies, 400) + copies - 1) / copies * copies;  // each copy as often
}

}  // namespace

Result<Timing> time_graph(testing::Gpu const& gpu, int launches, std::function<Status(int)> const& launch) {
    Result<driver::Graph> graph = driver::Graph::capture(gpu.stream(), [&]() -> Status {
        for (int n = 0; n < launches; ++n) XQAJIT_RETURN_IF_ERROR(launch(n));
        return {};
    });
    if (!graph.ok()) return graph.status();
    Result<driver::Event> begin = driver::Event::create();
    Result<driver::Event> end = driver::Event::create();
    if (!begin.ok()) return begin.status();
    if (!end.ok()) return end.status();
    std::vector<double> us;
    for (int n = 0; n < kReplays + 3; ++n) {  // the first ones warm up
        XQAJIT_RETURN_IF_ERROR(begin->record(gpu.stream()));
        XQAJIT_RETURN_IF_ERROR(graph->launch(gpu.stream()));
        XQAJIT_RETURN_IF_ERROR(end->record(gpu.stream()));
        Result<float> const ms = end->elapsed_ms_since(*begin);
        if (!ms.ok()) return ms.status();
        if (n >= 3) us.push_back(*ms * 1e3 / launches);
    }
    std::sort(us.begin(), us.end());
    return Timing{us[us.size() / 2], us.front(), us.back(), kReplays, launches};
}

Result<PointBuffers> PointBuffers::make(testing::Gpu const& gpu, Point const& point, std::uint64_t l2_bytes) {
    PointBuffers result;
    result.params_ = point.params;
    xqajit_params const& p = point.params;
    std::uint64_t const element = testing::bytes_of(p.kv_dtype);
    std::uint64_t const page_elements = std::uint64_t{p.page_size} * p.num_kv_heads * p.head_dim;
    std::uint32_t const pages = (point.len + p.page_size - 1) / p.page_size;
    std::uint64_t const pool_bytes = std::uint64_t{point.batch} * pages * page_elements * element;
    result.kv_bytes_ = std::uint64_t{point.batch} * point.len * p.num_kv_heads * p.head_dim * element * (p.mla ? 1 : 2);
    auto const copies =
        static_cast<int>(std::clamp<std::uint64_t>((4 * l2_bytes + result.kv_bytes_ - 1) / result.kv_bytes_, 2, 64));

    Status failed;
    auto const buffer = [&](std::uint64_t bytes) -> driver::DeviceBuffer const* {
        Result<driver::DeviceBuffer> made = driver::DeviceBuffer::allocate(bytes);
        if (!made.ok()) {
            failed = made.status();
            return nullptr;
        }
        result.buffers_.push_back(std::move(*made));
        return &result.buffers_.back();
    };
    auto const random_buffer = [&](std::uint64_t bytes, std::int32_t dtype, std::uint64_t seed) -> void* {
        driver::DeviceBuffer const* const made = buffer(bytes);
        if (made != nullptr) failed = fill_random(*made, dtype, seed);
        return made != nullptr && failed.ok() ? made->as<void>() : nullptr;
    };
    auto const table_buffer = [&](std::vector<std::int32_t> const& values) -> std::int32_t* {
        driver::DeviceBuffer const* const made = buffer(values.size() * 4);
        if (made != nullptr) failed = made->upload(std::as_bytes(std::span(values)));
        return made != nullptr && failed.ok() ? made->as<std::int32_t>() : nullptr;
    };

    std::uint64_t workspace_bytes = 0;
    XQAJIT_RETURN_IF_ERROR(testing::api(xqajit_prepare(gpu.service(), &p)));
    XQAJIT_RETURN_IF_ERROR(testing::api(xqajit_workspace_size(gpu.service(), &p, point.batch, point.len, &workspace_bytes)));
    driver::DeviceBuffer const* const workspace = buffer(workspace_bytes);
    if (workspace == nullptr) return failed;
    void* const workspace_address = workspace_bytes ? workspace->as<void>() : nullptr;
    testing::Random random(7);
    for (int copy = 0; copy < copies; ++copy) {
        xqajit_run_args args = XQAJIT_RUN_ARGS_INIT;
        args.batch = point.batch;
        args.max_pages = pages;
        args.max_len = point.len;
        args.k_stride_head = p.head_dim;  // NHD
        args.k_stride_token = std::int64_t{p.num_kv_heads} * p.head_dim;
        args.k_stride_page = static_cast<std::int64_t>(page_elements);
        args.k = random_buffer(pool_bytes, p.kv_dtype, 1);
        if (!p.mla && failed.ok()) {
            args.v = random_buffer(pool_bytes, p.kv_dtype, 2);
            args.v_stride_head = args.k_stride_head;
            args.v_stride_token = args.k_stride_token;
            args.v_stride_page = args.k_stride_page;
        }
        if (testing::bytes_of(p.kv_dtype) == 1) args.k_scale = args.v_scale = 0.5F;
        std::vector<std::int32_t> table(std::size_t{point.batch} * pages);
        std::iota(table.begin(), table.end(), 0);
        random.shuffle(table);
        if (failed.ok()) args.page_table = table_buffer(table);
        if (failed.ok()) args.seq_lens = table_buffer(std::vector<std::int32_t>(point.batch, static_cast<std::int32_t>(point.len)));
        if (failed.ok()) args.q = random_buffer(std::uint64_t{point.batch} * p.num_q_heads * p.head_dim * 2, p.q_dtype, 3);
        if (failed.ok()) args.out = random_buffer(std::uint64_t{point.batch} * p.num_q_heads * p.head_dim_v * 2, p.q_dtype, 4);
        if (!failed.ok()) return failed;
        args.workspace = workspace_address;
        args.workspace_size = workspace_bytes;
        result.args_.push_back(args);
    }
    XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
    if (workspace_bytes)
        XQAJIT_RETURN_IF_ERROR(
            testing::api(xqajit_workspace_init(gpu.service(), workspace_address, workspace_bytes, gpu.stream())));
    XQAJIT_RETURN_IF_ERROR(result.launch(gpu, 0));
    XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
    return result;
}

Status PointBuffers::launch(testing::Gpu const& gpu, int n) const {
    return testing::api(xqajit_run(gpu.service(), &params_, &args(n), gpu.stream()));
}

Result<ReadRoofline> ReadRoofline::compile(testing::Gpu const& gpu) {
    Result<Settings> const settings = Settings::from_environment();
    if (!settings.ok()) return settings.status();
    Result<NvrtcIdentity> const identity = find_nvrtc(*settings);
    if (!identity.ok()) return identity.status();
    auto const nvrtc = NvrtcLibrary::open(*identity);
    if (!nvrtc.ok()) return nvrtc.status();
    std::string const target = gpu.context().info().arch.target;
    CompileJob const job{"read roofline", target, {"--gpu-architecture=" + target}, {}, {{"read.cu", kReadKernel}}};
    Result<CompiledImage> const image = run_job(**nvrtc, job);
    if (!image.ok()) return image.status();
    driver::Image const images[] = {{image->image, image->is_ptx}};
    Result<driver::LoadedKernel> kernel = driver::LoadedKernel::load(gpu.context().info(), images, "read_bytes", 0);
    if (!kernel.ok()) return kernel.status();
    return ReadRoofline(std::move(*kernel), image->nvrtc_version);
}

Result<Timing> ReadRoofline::measure(testing::Gpu const& gpu, std::uint64_t bytes, int copies) const {
    std::vector<driver::DeviceBuffer> buffers;
    for (int n = 0; n < copies + 1; ++n) {
        Result<driver::DeviceBuffer> made = driver::DeviceBuffer::allocate(n < copies ? bytes : 4);
        if (!made.ok()) return made.status();
        if (n < copies) XQAJIT_RETURN_IF_ERROR(fill_random(*made, XQAJIT_DTYPE_BF16, 1));
        buffers.push_back(std::move(*made));
    }
    XQAJIT_RETURN_IF_ERROR(gpu.synchronize());
    Timing best;
    for (std::uint32_t const blocks_per_sm : {1U, 2U, 3U, 4U}) {  // of 512 threads
        driver::LaunchConfig const config{gpu.context().info().arch.sm_count * blocks_per_sm, 512, 0, false};
        auto const launch = [&](int n) {
            ReadArgs args{buffers[static_cast<std::size_t>(n % copies)].as<void>(), bytes / 16, buffers.back().as<unsigned int>()};
            return driver::launch(kernel_, config, &args, gpu.stream());
        };
        Result<Timing> const timing = time_graph(gpu, launches_for(static_cast<double>(bytes) / 4e6, copies), launch);
        if (!timing.ok()) return timing.status();
        if (best.us == 0 || timing->us < best.us) best = *timing;
    }
    return best;
}

}  // namespace xqajit::bench
