// xqajit run: one shape on random data in random, shuffled pages, through the public interface, timed in graph replays.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "../cli.h"
#include "base/json.h"
#include "gpu/device_problem.h"
#include "gpu/problem.h"
#include "tools/measure/read_roofline.h"

namespace xqajit::cli {
namespace {

using testing::DeviceProblem;
using testing::Gpu;
using testing::ReferenceCase;

// Host memory for the cache, and time to draw it: what is larger shares pages among requests, and the report says so.
constexpr std::uint64_t kMaxPoolBytes = 4ull << 30;

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

// The shape on the device, in as many copies as pass the L2: a KV that lay in it would show the L2's speed.
struct Copies {
    std::vector<DeviceProblem> problems;
    int count() const { return static_cast<int>(problems.size()); }
    Status launch(Gpu const& gpu, int n) const { return problems[static_cast<std::size_t>(n % count())].launch(gpu); }
};

Copies upload(Gpu const& gpu, ReferenceCase const& c, std::uint64_t distinct_bytes) {
    int const wanted = measure::copies_past_l2(distinct_bytes, value_of(measure::l2_bytes(gpu.context().info())));
    Copies copies;
    for (int n = 0; n < wanted; ++n) {
        copies.problems.push_back(value_of(DeviceProblem::upload(gpu, c)));
        check(copies.problems.back().prepare(gpu));
    }
    return copies;
}

double gb_per_s(std::uint64_t bytes, double us) { return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0; }

// GB/s of a kernel that only reads, over as many bytes in as many copies. UNAVAILABLE without NVRTC, which a cached kernel does not need.
Result<double> read_bandwidth(Gpu const& gpu, std::uint64_t bytes, int copies) {
    if (bytes == 0) return unavailable("nothing is read");
    Result<measure::ReadRoofline> const roofline = measure::ReadRoofline::compile(gpu.context());
    if (!roofline.ok()) return roofline.status();
    Result<measure::Timing> const timing = roofline->measure(gpu.context(), gpu.stream(), bytes, copies);
    if (!timing.ok()) return timing.status();
    return gb_per_s(bytes, timing->us);
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
    auto const [bytes, distinct] = kv_bytes(c);
    std::optional<Copies> copies = upload(*gpu, c, distinct);
    check(copies->problems.front().run(*gpu));

    nlohmann::ordered_json document = {{"schema", "xqajit.run/1"},
                                       {"gpu", gpu->context().info().device_name},
                                       {"batch", options.batch},
                                       {"seq_len", options.seq_len}};
    bool ok = true;
    std::string checked;
    if (options.check) {
        testing::Outputs const outputs = value_of(copies->problems.front().download());
        testing::Comparison const comparison = testing::compare_with_reference(c, outputs);
        std::size_t const all = testing::all_blocks(c).size();
        document["check"] = check_json(comparison, all);
        ok = comparison.ok;
        checked = fmt::format("{} against float64: {} of {} (request, kv head) blocks{}", comparison.summary(), comparison.blocks,
                              all, ok ? "" : "\n" + comparison.text);
    }

    int const count = copies->count();
    measure::Timing const timing =
        value_of(measure::time_rotated(gpu->stream(), count, [&](int n) { return copies->launch(*gpu, n); }));
    copies.reset();  // makes room for as many bytes to read
    Result<double> const read = read_bandwidth(*gpu, distinct, count);
    bool const shared = distinct < bytes;
    double const rate = gb_per_s(bytes, timing.us);
    double const percent = read.ok() && *read > 0 ? 100 * rate / *read : 0;
    document["us"] = timing.us;
    document["us_min"] = timing.min_us;
    document["us_max"] = timing.max_us;
    document["copies"] = count;
    document["kv_bytes"] = bytes;
    document["shared_pages"] = shared;
    document["distinct_kv_bytes"] = distinct;
    document["gb_per_s"] = rate;
    if (read.ok()) {
        document["read_gb_per_s"] = *read;
        document["percent_of_read"] = percent;
    } else {
        document["read_reason"] = read.status().message();
    }

    if (options.json) {
        print(to_text(document, 1));
    } else {
        print(fmt::format("{}, batch {}, length {}: {:.1f} us, {:.0f} GB/s of KV ({}{}), {}", gpu->context().info().device_name,
                          options.batch, options.seq_len, timing.us, rate, human_bytes(bytes),
                          shared ? " in shared pages of " + human_bytes(distinct) : "",
                          read.ok() ? fmt::format("{:.0f}% of a plain read's {:.0f} GB/s", percent, *read)
                                    : "no plain read to compare with: " + read.status().message()));
        if (options.check) print((ok ? "check passed: " : "check FAILED: ") + checked);
    }
    if (!ok) print_error("the output differs from the reference");
    return ok ? kDone : kFailed;
}

}  // namespace xqajit::cli
