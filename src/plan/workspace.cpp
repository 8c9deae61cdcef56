// How large a workspace is and how it is cut into counters and partials.
#include <algorithm>

#include "plan/blocks.h"
#include "plan/ceil_div.h"
#include "plan/plan.h"

namespace xqajit {

namespace {

constexpr std::uint64_t kAlign = 256;
// One part in 32 is counters. A partial has 80 bytes or more against its counters of 4 a merge level and block of a cluster, so
// that past the first few KB the partials alone decide the size for all but small heads; there, workspace_for() sees to the counters.
constexpr std::uint64_t kCounterShare = 32;

}  // namespace

std::uint64_t counter_bytes(std::uint64_t workspace_bytes) { return workspace_bytes / kCounterShare / kAlign * kAlign; }

std::uint64_t workspace_for(std::uint64_t nb_counters, std::uint64_t partial_bytes) {
    // Counted in pieces of 256 bytes: of w pieces floor(w / 32) are counters and the rest partials. Both grow with w, so the
    // least w is the larger of the two least ones: for c counter pieces 32 c; for p partial pieces p + floor((p - 1) / 31), since
    // each 31 pieces of partials before the last bring a piece of counters with them.
    std::uint64_t const counters = kCounterShare * ceil_div(nb_counters * sizeof(std::uint32_t), kAlign);
    std::uint64_t const pieces = ceil_div(partial_bytes, kAlign);
    std::uint64_t const partials = pieces == 0 ? 0 : pieces + (pieces - 1) / (kCounterShare - 1);
    return std::max(counters, partials) * kAlign;
}

namespace {

Result<std::uint64_t> most_static(KernelSpec const& spec, LaunchBounds const& bounds) {
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

// Of the launches with one max_len.
Result<std::uint64_t> most_balanced_at(KernelSpec const& spec, LaunchBounds const& bounds) {
    // Extra parts shrink with the batch until it fills a wave, then grow to two waves, and a wave holds fewer requests the more row
    // blocks they have. So try each: past this many requests all need as much as the whole batch.
    std::uint64_t const last = 2 * std::uint64_t{bounds.sm_count} * kMostBlocksAnSm + 2;
    std::uint64_t most = 0;
    LaunchBounds at = bounds;
    for (at.q_len = 1; at.q_len <= bounds.q_len; ++at.q_len) {
        for (at.batch = 1; at.batch <= bounds.batch; at.batch = at.batch == last ? bounds.batch : at.batch + 1) {
            Result<LaunchPlan> const plan = make_plan(spec, at);
            if (!plan.ok()) return plan.status();
            most = std::max(most, plan->workspace_bytes);
            if (at.batch == bounds.batch) break;
        }
    }
    return most;
}

Result<std::uint64_t> most_balanced(KernelSpec const& spec, LaunchBounds const& bounds) {
    // Extra parts never shrink with max_len, but for gmma's. hmma's clusters do, whose counters are fewer then, but the parts' bytes grow by
    // more.
    std::vector<std::uint64_t> lengths = {bounds.max_len};
    if (spec.family == Family::kGmma) lengths = gmma_lengths_of_most_parts(bounds.max_len);
    std::uint64_t most = 0;
    LaunchBounds at = bounds;
    for (std::uint64_t const max_len : lengths) {
        at.max_len = max_len;
        Result<std::uint64_t> const bytes = most_balanced_at(spec, at);
        if (!bytes.ok()) return bytes;
        most = std::max(most, *bytes);
    }
    return most;
}

}  // namespace

Result<std::uint64_t> workspace_size(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (bounds.division == XQAJIT_DIVISION_BALANCED && bounds.batch != 0) {
        Result<LaunchPlan> const whole = make_plan(spec, bounds);  // refuses what the smaller ones below would not
        if (!whole.ok()) return whole.status();
        return most_balanced(spec, bounds);
    }
    return most_static(spec, bounds);
}

}  // namespace xqajit
