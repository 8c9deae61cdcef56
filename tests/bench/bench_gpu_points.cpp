#include "bench/bench_gpu_points.h"

#include <algorithm>
#include <numeric>

#include "gpu/draw.h"
#include "reference/codec.h"
#include "tools/measure/timing.h"

namespace xqajit::bench {
namespace {

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

}  // namespace

Result<PointBuffers> PointBuffers::make(testing::Gpu const& gpu, Point const& point, std::uint64_t l2_bytes) {
    PointBuffers result;
    result.params_ = point.params;
    xqajit_params const& p = point.params;
    std::uint64_t const element = testing::bytes_of(p.kv_dtype);
    std::uint64_t const page_elements = std::uint64_t{p.page_size} * p.num_kv_heads * p.head_dim;
    std::uint32_t const pages = (point.len + p.page_size - 1) / p.page_size;
    std::uint64_t const pool_bytes = std::uint64_t{point.batch} * pages * page_elements * element;
    result.kv_bytes_ = std::uint64_t{point.batch} * point.len * p.num_kv_heads * p.head_dim * element * (p.mla ? 1 : 2);
    int const copies = std::max(2, measure::copies_past_l2(result.kv_bytes_, l2_bytes));

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

}  // namespace xqajit::bench
