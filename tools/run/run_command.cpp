// xqajit run: one shape on random data in random, shuffled pages, through the public interface, timed in graph replays.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "../cli.h"
#include "base/json.h"
#include "driver/cuda_functions.h"
#include "gpu/device_problem.h"
#include "gpu/problem.h"

namespace xqajit::cli {
namespace {

using driver::DeviceBuffer;
using driver::Event;
using driver::Graph;
using testing::DeviceProblem;
using testing::Gpu;
using testing::ReferenceCase;

// Host memory for the cache, and time to draw it: what is larger shares pages among requests, and the report says so.
constexpr std::uint64_t kMaxPoolBytes = 4ull << 30;
constexpr std::uint64_t kCopyBytes = 256ull << 20;  // past every L2
constexpr int kLaunchesPerGraph = 10;

void check(Status const& status) {
    if (!status.ok())
        throw Error(status.code(), status.detail().empty() ? status.message() : status.message() + "\n" + status.detail());
}

template <class T> T value_of(Result<T> result) {
    check(result.status());
    return std::move(result).value();
}

testing::ProblemSpec problem_of(RunOptions const& options, xqajit_params const& params) {
    testing::ProblemSpec spec;
    spec.params = params;
    spec.lens.assign(options.batch, static_cast<std::int32_t>(options.seq_len));
    bool const is_8bit = params.kv_dtype == XQAJIT_DTYPE_INT8 || params.kv_dtype == XQAJIT_DTYPE_FP8_E4M3;
    if (is_8bit) {
        spec.k_scale = params.kv_dtype == XQAJIT_DTYPE_INT8 ? 0.03f : 0.5f;
        spec.v_scale = params.kv_dtype == XQAJIT_DTYPE_INT8 ? 0.02f : 0.25f;
    }
    std::uint64_t const row =
        std::uint64_t{params.num_kv_heads} * (params.head_dim + (params.mla != 0 ? 0 : params.head_dim_v)) * (is_8bit ? 1 : 2);
    if (params.page_size != 0) spec.max_pool_pages = std::max<std::uint64_t>(64, kMaxPoolBytes / (row * params.page_size));
    return spec;
}

struct KvBytes {
    std::uint64_t read = 0;      // what the launch reads: the tokens that some row of the request sees
    std::uint64_t distinct = 0;  // in memory: a page that several requests share counts once
};

KvBytes kv_bytes(ReferenceCase const& c) {
    xqajit_params const& p = c.params;
    std::uint64_t tokens = 0;
    std::uint64_t own_tokens = 0;
    std::unordered_map<std::int32_t, std::uint64_t> seen_of_page;
    for (std::uint32_t row = 0; row < c.batch * p.beam_width; ++row) {
        auto const len = static_cast<std::uint64_t>(c.seq_lens[row / p.beam_width]);
        std::uint64_t const window = std::uint64_t{p.sliding_window} + p.q_len - 1;
        std::uint64_t const first = p.sliding_window != 0 && window < len ? len - window : 0;
        tokens += len - first;
        if (p.page_size == 0) {
            own_tokens += len - first;
            continue;
        }
        for (std::uint64_t t = first; t < len;) {
            std::uint64_t const end = std::min<std::uint64_t>(len, (t / p.page_size + 1) * p.page_size);
            std::int32_t const page =
                c.page_table[static_cast<std::size_t>(row) * static_cast<std::size_t>(c.page_table_stride) + t / p.page_size];
            std::uint64_t& seen = seen_of_page[page];
            seen = std::max(seen, end - t);
            t = end;
        }
    }
    for (auto const& [page, seen] : seen_of_page) own_tokens += seen;
    bool const is_8bit = p.kv_dtype == XQAJIT_DTYPE_INT8 || p.kv_dtype == XQAJIT_DTYPE_FP8_E4M3;
    std::uint64_t const row_bytes =
        std::uint64_t{p.num_kv_heads} * (p.head_dim + (p.mla != 0 ? 0 : p.head_dim_v)) * (is_8bit ? 1 : 2);
    return {tokens * row_bytes, own_tokens * row_bytes};
}

// Microseconds of one call of `work`, from `replays` replays of a graph that holds several.
double microseconds(Gpu const& gpu, std::uint32_t iterations, std::function<Status()> const& work) {
    Graph const graph = value_of(Graph::capture(gpu.stream(), [&]() -> Status {
        for (int i = 0; i < kLaunchesPerGraph; ++i) XQAJIT_RETURN_IF_ERROR(work());
        return {};
    }));
    Event const start = value_of(Event::create());
    Event const stop = value_of(Event::create());
    check(graph.launch(gpu.stream()));  // warm
    std::uint32_t const replays = std::max(1u, iterations / kLaunchesPerGraph);
    check(start.record(gpu.stream()));
    for (std::uint32_t i = 0; i < replays; ++i) check(graph.launch(gpu.stream()));
    check(stop.record(gpu.stream()));
    return double{value_of(stop.elapsed_ms_since(start))} * 1e3 / (static_cast<double>(replays) * kLaunchesPerGraph);
}

// GB/s that a device-to-device copy reads and writes together.
double copy_bandwidth(Gpu const& gpu) {
    driver::CudaLibrary const& cuda = *value_of(driver::open_cuda());
    DeviceBuffer const source = value_of(DeviceBuffer::allocate(kCopyBytes));
    DeviceBuffer const target = value_of(DeviceBuffer::allocate(kCopyBytes));
    double const us = microseconds(gpu, 20, [&]() -> Status {
        CUresult const result = cuda.cuMemcpyDtoDAsync(target.address(), source.address(), kCopyBytes, gpu.stream());
        return result == CUDA_SUCCESS ? Status() : driver::driver_error(cuda, "cuMemcpyDtoDAsync", result);
    });
    return us > 0 ? 2.0 * kCopyBytes / us * 1e-3 : 0;
}

nlohmann::ordered_json check_json(testing::Comparison const& comparison, std::size_t all_blocks) {
    return {{"ok", comparison.ok},
            {"text", comparison.text},
            {"rel_l2", comparison.rel_l2},
            {"max_ratio", comparison.max_ratio},
            {"lse_error", comparison.lse_error},
            {"fp8_steps", comparison.fp8_steps},
            {"blocks", comparison.blocks},
            {"all_blocks", all_blocks}};
}

}  // namespace

int run(RunOptions const& options) {
    xqajit_params const params = shape_of(options.flags);
    if (!options.cache_dir.empty()) ::setenv("XQAJIT_CACHE_DIR", options.cache_dir.c_str(), 1);
    std::unique_ptr<Gpu> const gpu = value_of(Gpu::open());
    testing::ProblemSpec const spec = problem_of(options, params);
    ReferenceCase const c = testing::build_case(spec);
    DeviceProblem problem = value_of(DeviceProblem::upload(*gpu, c));
    check(problem.prepare(*gpu));
    check(problem.run(*gpu));

    nlohmann::ordered_json document = {{"schema", "xqajit.run/1"},
                                       {"gpu", gpu->context().info().device_name},
                                       {"batch", options.batch},
                                       {"seq_len", options.seq_len}};
    bool ok = true;
    std::string checked;
    if (options.check) {
        testing::Outputs const outputs = value_of(problem.download());
        testing::Comparison const comparison = testing::compare_with_reference(c, outputs);
        std::size_t const all = testing::all_blocks(c).size();
        document["check"] = check_json(comparison, all);
        ok = comparison.ok;
        checked = fmt::format("{} against float64: {} of {} (request, kv head) blocks{}", comparison.summary(), comparison.blocks,
                              all, ok ? "" : "\n" + comparison.text);
    }

    double const us = microseconds(*gpu, options.iterations, [&] { return problem.launch(*gpu); });
    double const copy = copy_bandwidth(*gpu);
    auto const [bytes, distinct] = kv_bytes(c);
    bool const shared = distinct < bytes;
    double const rate = us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0;
    double const percent = copy > 0 ? 100 * rate / copy : 0;
    document["us"] = us;
    document["kv_bytes"] = bytes;
    document["shared_pages"] = shared;
    document["distinct_kv_bytes"] = distinct;
    document["gb_per_s"] = rate;
    document["copy_gb_per_s"] = copy;
    document["percent_of_copy"] = percent;

    if (options.json) {
        print(to_text(document, 1));
    } else {
        print(fmt::format(
            "{}, batch {}, length {}: {:.1f} us, {:.0f} GB/s of KV ({}{}), {:.0f}% of a device copy's {:.0f} GB/s (read + write)",
            gpu->context().info().device_name, options.batch, options.seq_len, us, rate, human_bytes(bytes),
            shared ? " in shared pages of " + human_bytes(distinct) : "", percent, copy));
        if (options.check) print((ok ? "check passed: " : "check FAILED: ") + checked);
    }
    if (!ok) print_error("the output differs from the reference");
    return ok ? kDone : kFailed;
}

}  // namespace xqajit::cli
