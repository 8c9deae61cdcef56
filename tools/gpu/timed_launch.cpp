#include "timed_launch.h"

#include <fmt/format.h>

#include <algorithm>

#include "driver/cuda_functions.h"
#include "reference/codec.h"

namespace xqajit::cli {
namespace {

// What is drawn, for each of K and V; the device's pages repeat it. A multiple of any L2, and drawn in a second.
constexpr std::uint64_t kDrawnBytes = 256ull << 20;
constexpr std::uint64_t kMaxContiguousBytes = 4ull << 30;  // drawn whole
constexpr double kMaxBlockCost = 4e9;                      // multiply-adds of the reference, seconds on one core

std::uint64_t longest_of(std::vector<std::int32_t> const& lens) {
    return lens.empty() ? 0 : static_cast<std::uint64_t>(*std::max_element(lens.begin(), lens.end()));
}

std::uint64_t token_bytes(xqajit_params const& p) {
    return std::uint64_t{p.num_kv_heads} * (p.head_dim + (p.mla != 0 ? 0 : p.head_dim_v)) * testing::bytes_of(p.kv_dtype);
}

std::uint64_t free_device_bytes() {
    driver::CudaLibrary const& cuda = *value_of(driver::open_cuda());
    std::size_t free_bytes = 0;
    std::size_t total = 0;
    CUresult const result = cuda.cuMemGetInfo(&free_bytes, &total);
    if (result != CUDA_SUCCESS) check(driver::driver_error(cuda, "cuMemGetInfo", result));
    return free_bytes;
}

void check_room(xqajit_params const& params, std::vector<std::int32_t> const& lens, std::uint64_t max_len) {
    std::uint64_t const needed = pool_bytes(params, lens, max_len);
    if (std::uint64_t const free_bytes = free_device_bytes(); needed > free_bytes)
        throw Error(XQAJIT_OUT_OF_MEMORY, fmt::format("the KV takes {}, of the device's memory {} are free", human_bytes(needed),
                                                      human_bytes(free_bytes)));
    if (params.page_size == 0 && needed > kMaxContiguousBytes)
        throw Error(XQAJIT_OUT_OF_MEMORY, fmt::format("the contiguous KV takes {}, at most {} are drawn: use pages",
                                                      human_bytes(needed), human_bytes(kMaxContiguousBytes)));
}

// The page table, or a sequence's capacity, goes to max_len.
testing::ProblemSpec spec_of(xqajit_params const& params, std::vector<std::int32_t> const& lens, testing::Draw draw,
                             std::uint64_t max_len) {
    testing::ProblemSpec spec;
    spec.params = params;
    spec.lens = lens;
    spec.draw = draw;
    if (std::uint64_t const longest = longest_of(lens); params.page_size == 0) {
        spec.capacity = static_cast<std::int64_t>(max_len);
    } else if (max_len > longest) {
        spec.spare_table_entries = static_cast<std::uint32_t>((max_len - longest + params.page_size - 1) / params.page_size);
    }
    if (testing::bytes_of(params.kv_dtype) == 1) {
        spec.k_scale = params.kv_dtype == XQAJIT_DTYPE_INT8 ? 0.03f : 0.5f;
        spec.v_scale = params.kv_dtype == XQAJIT_DTYPE_INT8 ? 0.02f : 0.25f;
    }
    // Requests that store new tokens have pages of their own in the drawn pool too.
    if (params.page_size != 0 && params.input_kv == 0)
        spec.max_pool_pages = std::max<std::uint64_t>(64, 2 * kDrawnBytes / (token_bytes(params) * params.page_size));
    return spec;
}

}  // namespace

void check(Status const& status) {
    if (!status.ok())
        throw Error(status.code(), status.detail().empty() ? status.message() : status.message() + "\n" + status.detail());
}

std::uint64_t kv_bytes(xqajit_params const& params, std::vector<std::int32_t> const& lens) {
    xqajit_params const p = testing::with_defaults(params);
    std::uint64_t const window = p.sliding_window != 0 ? std::uint64_t{p.sliding_window} + p.q_len - 1 : UINT64_MAX;
    std::uint64_t tokens = 0;
    for (std::int32_t const len : lens) tokens += std::min(static_cast<std::uint64_t>(len), window) * p.beam_width;
    return tokens * token_bytes(p);
}

std::uint64_t pool_bytes(xqajit_params const& params, std::vector<std::int32_t> const& lens, std::uint64_t max_len) {
    xqajit_params const p = testing::with_defaults(params);
    std::uint64_t const capacity = std::max(max_len, longest_of(lens));
    std::uint64_t tokens = 0;
    for (std::int32_t const len : lens) {
        std::uint64_t const held = p.page_size != 0 ? static_cast<std::uint64_t>(len) : capacity;
        tokens += (p.page_size != 0 ? (held + p.page_size - 1) / p.page_size * p.page_size : held) * p.beam_width;
    }
    return tokens > UINT64_MAX / token_bytes(p) ? UINT64_MAX : tokens * token_bytes(p);
}

double gb_per_s(std::uint64_t bytes, double us) { return us > 0 ? static_cast<double>(bytes) / us * 1e-3 : 0; }

TimedLaunch::TimedLaunch(testing::Gpu const& gpu, xqajit_params const& given, std::vector<std::int32_t> const& lens,
                         testing::Draw draw, std::uint64_t max_len)
    : gpu_(&gpu) {
    xqajit_params const params = testing::with_defaults(given);
    check(testing::api(xqajit_prepare(gpu.service(), &params)));  // a refused shape need not be drawn
    check_room(params, lens, max_len);
    case_ = testing::build_case(spec_of(params, lens, draw, max_len));
    testing::LaunchOptions options;
    options.own_pages = true;
    options.max_len = std::max(max_len, longest_of(lens));
    int const wanted = measure::copies_past_l2(kv_bytes(params, lens), value_of(measure::l2_bytes(gpu.context().info())));
    for (int n = 0; n < wanted; ++n) {
        problems_.push_back(value_of(testing::DeviceProblem::upload(gpu, case_, options)));
        // One workspace, as an engine has for its layers: the launches follow each other on one stream.
        problems_.back().args.workspace = problems_.front().args.workspace;
        check(problems_.back().prepare(gpu));
    }
    check(problems_.front().run(gpu));  // a launch that is refused, or fails, says so here rather than in a capture
}

measure::Timing TimedLaunch::time() {
    return value_of(measure::time_rotated(gpu_->stream(), copies(),
                                          [&](int n) { return problems_[static_cast<std::size_t>(n % copies())].launch(*gpu_); }));
}

void TimedLaunch::set_pdl(bool on) {
    for (testing::DeviceProblem& problem : problems_) {
        problem.params.pdl = on ? 1 : 0;
        check(problem.prepare(*gpu_));
    }
}

std::string TimedLaunch::why_unchecked() const {
    xqajit_params const& p = case_.params;
    std::uint64_t const longest = longest_of(case_.seq_lens);
    double const cost = static_cast<double>(longest) * p.q_len * p.beam_width * case_.group() * (p.head_dim + p.head_dim_v);
    if (cost <= kMaxBlockCost) return {};
    return fmt::format("the longest request takes {:.0e} multiply-adds a KV head in float64, at most {:.0e} are waited for", cost,
                       kMaxBlockCost);
}

testing::Comparison TimedLaunch::compare() {
    testing::DeviceProblem& problem = problems_.front();
    check(problem.run(*gpu_));
    return testing::compare_with_reference(case_, value_of(problem.download()));
}

std::optional<double> TimedLaunch::skipped_fraction() {
    if (case_.params.skip_softmax == 0) return std::nullopt;
    testing::DeviceProblem& problem = problems_.front();
    value_of(problem.take_skipped_tiles());
    check(problem.run(*gpu_));
    auto const tiles = value_of(problem.take_skipped_tiles());
    return tiles.all == 0 ? 0 : static_cast<double>(tiles.skipped) / static_cast<double>(tiles.all);
}

}  // namespace xqajit::cli
