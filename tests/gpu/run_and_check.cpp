#include "gpu/run_and_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/codec.h"

namespace xqajit::testing {

std::vector<Block> choose_blocks(ReferenceCase const& c, double budget) {
    std::vector<Block> const all = all_blocks(c);
    double cost = 0;
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        double tokens = std::max(1, c.seq_lens[b]);
        if (c.params.sliding_window) tokens = std::min(tokens, static_cast<double>(c.params.sliding_window + c.q_len));
        cost += tokens * static_cast<double>(c.rows_of(b)) * c.params.beam_width * c.params.num_q_heads *
                (c.params.head_dim + c.params.head_dim_v);
    }
    if (cost <= budget || all.size() <= 2) return all;
    auto const wanted =
        std::clamp<std::size_t>(static_cast<std::size_t>(budget / cost * static_cast<double>(all.size())), 2, all.size());
    std::vector<Block> chosen;
    // Evenly spread, the ends included.
    for (std::size_t n = 0; n < wanted; ++n) chosen.push_back(all[n * (all.size() - 1) / (wanted - 1)]);
    return chosen;
}

Comparison compare_with_reference(ReferenceCase const& c, Outputs const& outputs, std::span<Block const> blocks, unsigned threads,
                                  std::optional<Bounds> const& bounds) {
    std::vector<Block> chosen(blocks.begin(), blocks.end());
    if (chosen.empty()) chosen = choose_blocks(c);
    return compare_outputs(c, outputs.out, outputs.lse, compute_reference(c, chosen, threads), bounds.value_or(bounds_of(c)));
}

std::string difference(ReferenceCase const& c, Outputs const& a, Outputs const& b) {
    // Rows of a head, wherever the strides put them: bytes that nothing writes are the same.
    std::uint64_t const row = std::uint64_t{c.params.head_dim_v} * bytes_of(c.params.out_dtype);
    std::uint64_t rows = 0, first = 0;
    for (std::uint64_t at = 0; at + row <= a.out.size(); at += row) {
        if (std::equal(a.out.begin() + static_cast<std::ptrdiff_t>(at), a.out.begin() + static_cast<std::ptrdiff_t>(at + row),
                       b.out.begin() + static_cast<std::ptrdiff_t>(at)))
            continue;
        if (rows++ == 0) first = at / row;
    }
    return fmt::format("in {} of {} rows of a head's size, the first of which is {}; lse {}", rows, a.out.size() / row, first,
                       a.lse == b.lse ? "the same" : "differs");
}

Verdict run_and_check(Gpu const& gpu, ReferenceCase const& c, LaunchOptions const& options, std::span<Block const> blocks) {
    Verdict verdict;
    auto const failed = [&](char const* step, Status const& status) {
        verdict.text = fmt::format("{}: {}", step, status.to_string());
        if (!status.detail().empty()) verdict.text += "\n" + status.detail();
        if (status.code() == XQAJIT_UNSUPPORTED) {
            Result<bool> const refused = gpu.refused_by_force(c.params);
            verdict.refused = refused.ok() && *refused;
        }
        return verdict;
    };
    Result<DeviceProblem> problem = DeviceProblem::upload(gpu, c, options);
    if (!problem.ok()) return failed("upload", problem.status());
    if (Status const status = problem->prepare(gpu); !status.ok()) return failed("prepare", status);
    if (Status const status = problem->run(gpu); !status.ok()) return failed("run", status);
    Result<Outputs> outputs = problem->download();
    if (!outputs.ok()) return failed("download", outputs.status());
    verdict.outputs = std::move(*outputs);
    if (Status const status = problem->check_memory(verdict.outputs); !status.ok()) return failed("memory", status);
    Result<ReferenceCase> const attended = c.params.input_kv ? problem->as_stored(c) : Result<ReferenceCase>(c);
    if (!attended.ok()) return failed("append", attended.status());
    auto const compared = [&](Outputs const& of_run) {
        return compare_with_reference(*attended, of_run, blocks, options.reference_threads, bounds_of(c));
    };
    verdict.comparison = compared(verdict.outputs);
    if (!verdict.comparison.ok) {
        verdict.text = verdict.comparison.text;
        return verdict;
    }
    if (Status const status = problem->run(gpu); !status.ok()) return failed("second run", status);
    Result<Outputs> again = problem->download();
    if (!again.ok()) return failed("second download", again.status());
    if (c.params.input_kv) {
        Result<ReferenceCase> const stored_again = problem->as_stored(c);
        if (!stored_again.ok()) return failed("second append", stored_again.status());
    }
    verdict.repeated = true;
    if (!(*again == verdict.outputs)) {
        Comparison const second = compared(*again);
        verdict.text = fmt::format("the second run gave other bits, {}; it is {}: {}", difference(c, verdict.outputs, *again),
                                   second.ok ? "right" : "wrong", second.text);
        return verdict;
    }
    verdict.ok = true;
    return verdict;
}

}  // namespace xqajit::testing
