#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "kernel_src/common/contract.h"
#include "plan/ceil_div.h"

namespace xqajit {

namespace {

constexpr std::uint64_t kMaxGridX = std::numeric_limits<std::int32_t>::max();
constexpr std::uint32_t kMaxQLen = 64;

template <class Enum> constexpr bool same(Enum device_value, int public_value) {
    return static_cast<std::uint32_t>(device_value) == static_cast<std::uint32_t>(public_value);
}
static_assert(same(device::Type::kFp16, XQAJIT_DTYPE_FP16) && same(device::Type::kBf16, XQAJIT_DTYPE_BF16) &&
              same(device::Type::kFp8E4m3, XQAJIT_DTYPE_FP8_E4M3) && same(device::Type::kInt8, XQAJIT_DTYPE_INT8));
static_assert(same(device::SpecDec::kNone, XQAJIT_SPEC_DEC_NONE) && same(device::SpecDec::kLinear, XQAJIT_SPEC_DEC_LINEAR) &&
              same(device::SpecDec::kTree, XQAJIT_SPEC_DEC_TREE));
static_assert(same(device::Division::kStatic, XQAJIT_DIVISION_STATIC) &&
              same(device::Division::kInvariant, XQAJIT_DIVISION_INVARIANT));

Status check(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (spec.family != Family::kMmha) {
        return unsupported(fmt::format("{} has no launch plan: its kernels are no part of this build", family_name(spec.family)));
    }
    if (bounds.q_len < 1 || bounds.q_len > kMaxQLen) {
        return invalid_argument(fmt::format("q_len is {}: accepted are 1..{}", bounds.q_len, kMaxQLen));
    }
    if (bounds.num_kv_heads == 0) return invalid_argument("num_kv_heads is 0: accepted are 1..4096");
    if (bounds.nb_sub_seq > kMaxSubSeq) {
        return invalid_argument(fmt::format("nb_sub_seq is {}: accepted are 0 (chosen) and 1..{}", bounds.nb_sub_seq, kMaxSubSeq));
    }
    if (bounds.division < XQAJIT_DIVISION_STATIC || bounds.division > XQAJIT_DIVISION_INVARIANT) {
        return invalid_argument(
            fmt::format("division is {}: accepted are static (1), balanced (2) and invariant (3)", bounds.division));
    }
    if (!family_divides(spec.family, bounds.division)) {
        return unsupported(
            fmt::format("division is {}: {} has no such division", division_name(bounds.division), family_name(spec.family)));
    }
    if (bounds.nb_sub_seq != 0 && bounds.division != XQAJIT_DIVISION_STATIC) {
        return invalid_argument(
            fmt::format("nb_sub_seq is {} under {} division: accepted is 0 (only static division takes a number)",
                        bounds.nb_sub_seq, division_name(bounds.division)));
    }
    return {};
}

std::uint64_t sub_seqs(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) {
        std::uint64_t const edges = ceil_div(bounds.max_len, kInvariantTokens);
        return std::max<std::uint64_t>(edges, 1);
    }
    if (bounds.nb_sub_seq != 0) return bounds.nb_sub_seq;
    // Each beam reads its own KV, as a request does.
    std::uint64_t const requests = std::min<std::uint64_t>(std::uint64_t{bounds.batch} * spec.beam_width, UINT32_MAX);
    std::uint32_t const count = static_cast<std::uint32_t>(requests);
    if (spec.mla) return mla_sub_seqs(count, bounds.max_len, bounds.sm_count);
    return std::min(decode_sub_seqs(count, bounds.num_kv_heads, bounds.max_len, bounds.sm_count, kMaxSubSeq),
                    mmha_wave_sub_seqs(count, bounds.num_kv_heads, bounds.sm_count));
}

}  // namespace

std::int32_t resolve_division(Family family, std::int32_t division, std::uint32_t nb_sub_seq) {
    if (division != XQAJIT_DIVISION_DEFAULT) return division;
    bool const balanced = nb_sub_seq == 0 && family_divides(family, XQAJIT_DIVISION_BALANCED);
    return balanced ? XQAJIT_DIVISION_BALANCED : XQAJIT_DIVISION_STATIC;
}

Result<LaunchPlan> make_plan(KernelSpec const& spec, LaunchBounds const& bounds) {
    XQAJIT_RETURN_IF_ERROR(check(spec, bounds));
    LaunchPlan plan;
    plan.block_x = device::kMmhaThreads;
    plan.nb_row_blocks = (bounds.q_len * spec.group_size + spec.m_tile - 1) / spec.m_tile;
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) plan.tokens_per_sub_seq = kInvariantTokens;
    if (bounds.batch == 0) return plan;

    // Capped at each step, so that no product overflows: a capped one is past every limit anyway.
    std::uint64_t const nb_sub_seq = sub_seqs(spec, bounds);
    std::uint64_t blocks = 1;
    for (std::uint64_t const factor : {std::uint64_t{bounds.batch}, std::uint64_t{spec.beam_width},
                                       std::uint64_t{bounds.num_kv_heads}, std::uint64_t{plan.nb_row_blocks}, nb_sub_seq}) {
        blocks = factor > kMaxGridX ? kMaxGridX + 1 : std::min(blocks * factor, kMaxGridX + 1);
    }
    if (blocks > kMaxGridX) {
        return invalid_argument(
            fmt::format("the grid of batch {} x beam_width {} x num_kv_heads {} x {} row blocks x {} sub-sequences is more than "
                        "the {} blocks that a "
                        "launch can have",
                        bounds.batch, spec.beam_width, bounds.num_kv_heads, plan.nb_row_blocks, nb_sub_seq, kMaxGridX));
    }
    plan.grid_x = static_cast<std::uint32_t>(blocks);
    plan.nb_sub_seq = static_cast<std::uint32_t>(nb_sub_seq);
    plan.units = blocks / nb_sub_seq;
    if (nb_sub_seq > 1) {
        plan.partial_bytes = blocks * device::partial_floats(spec.m_tile, spec.head_dim_v) * sizeof(float);
        plan.workspace_bytes = workspace_for(plan.units, plan.partial_bytes);
    }
    return plan;
}

std::string LaunchPlan::to_string() const {
    std::string text = fmt::format("grid {} x block {}, nb_sub_seq {}, nb_row_blocks {}, units {}, workspace {} bytes", grid_x,
                                   block_x, nb_sub_seq, nb_row_blocks, units, workspace_bytes);
    if (tokens_per_sub_seq != 0) text += fmt::format(", {} tokens a sub-sequence", tokens_per_sub_seq);
    return text;
}

std::string LaunchPlan::to_json() const {
    return to_text({
        {"grid_x", grid_x},
        {"block_x", block_x},
        {"nb_row_blocks", nb_row_blocks},
        {"nb_sub_seq", nb_sub_seq},
        {"tokens_per_sub_seq", tokens_per_sub_seq},
        {"units", units},
        {"partial_bytes", partial_bytes},
        {"workspace_bytes", workspace_bytes},
        {"dynamic_smem", dynamic_smem},
    });
}

}  // namespace xqajit
