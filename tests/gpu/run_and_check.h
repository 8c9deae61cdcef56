// A launch compared with the reference, and with itself.
#pragma once

#include <optional>

#include "gpu/device_problem.h"
#include "reference/compare.h"

namespace xqajit::testing {

// What a check found; text names the launch's failure, "" if none.
struct Verdict {
    bool ok = false;
    bool refused = false;   // by the family that is forced alone (Gpu::refused_by_force); text has the rule
    bool repeated = false;  // the second run was compared with the first
    std::string text;
    Comparison comparison;
    Outputs outputs;
};

// Uploads, prepares, runs twice (same bits), checks memory, and compares `blocks` (empty: as many as a moderate amount of arithmetic
// covers, first and last among them).
Verdict run_and_check(Gpu const& gpu, ReferenceCase const& c, LaunchOptions const& options = {},
                      std::span<Block const> blocks = {});
// Where the bits of two outputs differ, in words.
std::string difference(ReferenceCase const& c, Outputs const& a, Outputs const& b);
// The comparison alone. threads: 0 takes one a core. bounds: those of `c` if none.
Comparison compare_with_reference(ReferenceCase const& c, Outputs const& outputs, std::span<Block const> blocks = {},
                                  unsigned threads = 0, std::optional<Bounds> const& bounds = std::nullopt);
// Blocks within a budget of multiply-adds (of one block's average cost), in order.
std::vector<Block> choose_blocks(ReferenceCase const& c, double budget = 2e9);

}  // namespace xqajit::testing
