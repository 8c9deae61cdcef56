// How large a workspace is and how it is cut into counters and partials.
#include <algorithm>

#include "plan/ceil_div.h"
#include "plan/plan.h"

namespace xqajit {

namespace {

constexpr std::uint64_t kAlign = 256;
// One part in 32 is counters. A unit's least partials are 2 x 80 bytes against its counter of 4, so that past the first few KB the
// partials alone decide the size; below, workspace_for() sees to the counters.
constexpr std::uint64_t kCounterShare = 32;

}  // namespace

std::uint64_t counter_bytes(std::uint64_t workspace_bytes) { return workspace_bytes / kCounterShare / kAlign * kAlign; }

std::uint64_t workspace_for(std::uint64_t units, std::uint64_t partial_bytes) {
    // Counted in pieces of 256 bytes: of w pieces floor(w / 32) are counters and the rest partials. Both grow with w, so the least w is
    // the larger of the two least ones: for c counter pieces 32 c; for p partial pieces p + floor((p - 1) / 31), since each 31 pieces of
    // partials before the last bring a piece of counters with them.
    std::uint64_t const counters = kCounterShare * ceil_div(units * sizeof(std::uint32_t), kAlign);
    std::uint64_t const pieces = ceil_div(partial_bytes, kAlign);
    std::uint64_t const partials = pieces == 0 ? 0 : pieces + (pieces - 1) / (kCounterShare - 1);
    return std::max(counters, partials) * kAlign;
}

Result<std::uint64_t> workspace_size(KernelSpec const& spec, LaunchBounds const& bounds) {
    // Neither the number of sub-sequences nor the number of row blocks shrinks with max_len or q_len, so both stay at their bounds.
    // The number of sub-sequences shrinks as the batch grows, so the whole batch is not always the worst. Of the batches with one
    // number of sub-sequences the largest needs most: walk down over the places where that number changes.
    std::uint64_t most = 0;
    LaunchBounds at = bounds;
    for (;;) {
        Result<LaunchPlan> const plan = make_plan(spec, at);
        if (!plan.ok()) return plan.status();
        most = std::max(most, plan->workspace_bytes);
        std::uint32_t below = 0;  // the largest batch known to have more sub-sequences; 0: none has
        std::uint32_t above = at.batch;
        LaunchBounds probe = at;
        while (above - below > 1) {
            probe.batch = below + (above - below) / 2;
            Result<LaunchPlan> const there = make_plan(spec, probe);
            if (!there.ok()) return there.status();
            (there->nb_sub_seq > plan->nb_sub_seq ? below : above) = probe.batch;
        }
        if (below == 0) return most;
        at.batch = below;
    }
}

}  // namespace xqajit
