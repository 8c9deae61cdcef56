#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "kernel_src/common/work_division.h"
#include "plan/blocks.h"
#include "plan/ceil_div.h"
#include "select/select.h"

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
static_assert(same(device::RopeStyle::kNone, XQAJIT_ROPE_NONE) && same(device::RopeStyle::kNeox, XQAJIT_ROPE_NEOX) &&
              same(device::RopeStyle::kGptj, XQAJIT_ROPE_GPTJ));
static_assert(same(device::Division::kStatic, XQAJIT_DIVISION_STATIC) &&
              same(device::Division::kBalanced, XQAJIT_DIVISION_BALANCED) &&
              same(device::Division::kInvariant, XQAJIT_DIVISION_INVARIANT));

Status check(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (!family_is_built(spec.family)) {
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
    if (bounds.nb_sub_seq != 0 && bounds.division != XQAJIT_DIVISION_STATIC) {
        return invalid_argument(
            fmt::format("nb_sub_seq is {} under {} division: accepted is 0 (only static division takes a number)",
                        bounds.nb_sub_seq, division_name(bounds.division)));
    }
    return {};
}

std::uint64_t partial_bytes(KernelSpec const& spec) { return device::partial_floats(spec.m_tile, spec.head_dim_v) * sizeof(float); }

BlockShape block_shape(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    if (spec.family == Family::kHmma) return hmma_blocks(spec, bounds, units);
    if (spec.family == Family::kGmma) return gmma_blocks(spec, bounds, units);
    // MLA's row blocks fill an SM by themselves: more parts would only be merged.
    BlockShape block;
    block.threads = device::kMmhaThreads;
    block.at_once = std::uint64_t{bounds.sm_count} * (spec.mla ? 1 : kMostBlocksAnSm);
    return block;
}

std::uint64_t sub_seqs(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) return std::max<std::uint64_t>(ceil_div(bounds.max_len, kInvariantTokens), 1);
    if (bounds.nb_sub_seq != 0) return bounds.nb_sub_seq;
    // Each beam reads its own KV, as a request does.
    std::uint64_t const requests = std::min<std::uint64_t>(std::uint64_t{bounds.batch} * spec.beam_width, UINT32_MAX);
    std::uint32_t const count = static_cast<std::uint32_t>(requests);
    if (spec.mla) return mla_sub_seqs(count, bounds.max_len, bounds.sm_count);
    if (spec.family != Family::kMmha) return hmma_kernel_sub_seqs(count, bounds.num_kv_heads, bounds.max_len, bounds.sm_count);
    return std::min(decode_sub_seqs(count, bounds.num_kv_heads, bounds.max_len, bounds.sm_count, kMaxSubSeq),
                    mmha_wave_sub_seqs(count, bounds.num_kv_heads, bounds.sm_count));
}

// The parts of all requests under balanced division, and the most that one has.
struct BalancedParts {
    std::uint32_t extra;
    std::uint32_t most;
};

BalancedParts balanced_parts(KernelSpec const& spec, LaunchBounds const& bounds, std::uint32_t nb_row_blocks,
                             BlockShape const& block) {
    // mmha leaves its row blocks out: they read the same KV, and more parts measured better than fewer there.
    std::uint64_t const blocks_of_part =
        std::uint64_t{bounds.num_kv_heads} * spec.beam_width * (spec.family == Family::kMmha ? 1 : nb_row_blocks);
    std::uint64_t const wave = std::max<std::uint64_t>(1, block.at_once / blocks_of_part);
    std::uint64_t const granules = ceil_div(bounds.max_len, device::kShareTokens);
    std::uint32_t const most =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(granules / (device::kLeastGranules * block.cluster), 1, kMaxGridX));
    std::uint32_t const extra = balanced_extra_parts(bounds.batch, wave, most, block.fills, block.even_half_waves);
    return {extra, std::min(extra + 1, most)};
}

}  // namespace

std::int32_t resolve_division(std::int32_t division, std::uint32_t nb_sub_seq) {
    if (division != XQAJIT_DIVISION_DEFAULT) return division;
    return nb_sub_seq == 0 ? XQAJIT_DIVISION_BALANCED : XQAJIT_DIVISION_STATIC;
}

std::uint32_t balanced_extra_parts(std::uint32_t batch, std::uint64_t wave, std::uint32_t most_parts, bool fills,
                                   std::uint32_t even_half_waves) {
    if (batch == 0) return 0;
    std::uint64_t const fill = fills && batch < wave ? wave - batch : 0;
    std::uint64_t const most_even = even_half_waves == 0 ? 0 : std::max<std::uint64_t>(1, wave * even_half_waves / 2);
    std::uint64_t const even = std::min<std::uint64_t>(batch - 1, most_even);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(fill, even), std::uint64_t{batch} * (most_parts - 1)));
}

std::uint32_t most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin) {
    if (spec.family == Family::kHmma) return hmma_most_dynamic_smem(spec, smem_optin);
    return spec.family == Family::kGmma ? gmma_most_dynamic_smem(spec, smem_optin) : 0;
}

Result<LaunchPlan> make_plan(KernelSpec const& spec, LaunchBounds const& bounds) {
    XQAJIT_RETURN_IF_ERROR(check(spec, bounds));
    LaunchPlan plan;
    plan.nb_row_blocks = static_cast<std::uint32_t>(ceil_div(std::uint64_t{bounds.q_len} * spec.group_size, spec.m_tile));
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) plan.tokens_per_sub_seq = kInvariantTokens;
    if (bounds.batch == 0) return plan;

    // Capped at each step, so that no product overflows: a capped one is past every limit anyway.
    auto const capped_product = [](std::initializer_list<std::uint64_t> factors) {
        std::uint64_t product = 1;
        for (std::uint64_t const factor : factors)
            product = factor > kMaxGridX ? kMaxGridX + 1 : std::min(product * factor, kMaxGridX + 1);
        return product;
    };
    std::uint64_t const blocks_of_part = capped_product({spec.beam_width, bounds.num_kv_heads, plan.nb_row_blocks});
    BlockShape const block = block_shape(spec, bounds, capped_product({bounds.batch, blocks_of_part}));
    if (block.least_smem > bounds.smem_optin) {
        return unsupported(fmt::format("a block of {} needs {} bytes of shared memory: the device grants a block {}",
                                       to_string(spec), block.least_smem, bounds.smem_optin));
    }
    std::uint64_t parts = bounds.batch, slots = 0, most_parts = 0;
    if (bounds.division == XQAJIT_DIVISION_BALANCED) {
        BalancedParts const balanced = balanced_parts(spec, bounds, plan.nb_row_blocks, block);
        plan.nb_extra_parts = balanced.extra;
        most_parts = balanced.most;
        parts += balanced.extra;
        slots = device::balanced_slots(balanced.extra);
    } else {
        most_parts = sub_seqs(spec, bounds);
        parts = capped_product({bounds.batch, most_parts});
        slots = most_parts > 1 ? parts : 0;
    }
    std::uint64_t const blocks = capped_product({parts, blocks_of_part, block.cluster});
    if (blocks > kMaxGridX) {
        return invalid_argument(fmt::format(
            "the grid of batch {} x beam_width {} x num_kv_heads {} x {} row blocks x up to {} sub-sequences is more than "
            "the {} blocks that a launch can have",
            bounds.batch, spec.beam_width, bounds.num_kv_heads, plan.nb_row_blocks, most_parts, kMaxGridX));
    }
    plan.block_x = block.threads;
    plan.cluster_size = block.cluster;
    plan.grid_x = static_cast<std::uint32_t>(blocks);
    plan.nb_sub_seq = static_cast<std::uint32_t>(most_parts);
    plan.nb_slots = static_cast<std::uint32_t>(slots * blocks_of_part);
    std::uint64_t const counters = std::uint64_t{plan.nb_slots} * device::merge_levels(plan.nb_sub_seq) * plan.cluster_size;
    plan.workspace_bytes = workspace_for(counters, plan.nb_slots * partial_bytes(spec));
    plan.dynamic_smem = block.dynamic_smem;
    plan.ring_items = block.ring_items;
    return plan;
}

std::string LaunchPlan::to_string() const {
    std::string text = fmt::format("grid {} x block {}, nb_sub_seq {}, nb_row_blocks {}, workspace {} bytes", grid_x, block_x,
                                   nb_sub_seq, nb_row_blocks, workspace_bytes);
    if (cluster_size > 1) text += fmt::format(", clusters of {}", cluster_size);
    if (nb_extra_parts != 0) text += fmt::format(", {} extra parts", nb_extra_parts);
    if (tokens_per_sub_seq != 0) text += fmt::format(", {} tokens a sub-sequence", tokens_per_sub_seq);
    return text;
}

std::string LaunchPlan::to_json() const {
    return to_text({
        {"grid_x", grid_x},
        {"block_x", block_x},
        {"cluster_size", cluster_size},
        {"nb_row_blocks", nb_row_blocks},
        {"nb_sub_seq", nb_sub_seq},
        {"nb_extra_parts", nb_extra_parts},
        {"tokens_per_sub_seq", tokens_per_sub_seq},
        {"nb_slots", nb_slots},
        {"workspace_bytes", workspace_bytes},
        {"dynamic_smem", dynamic_smem},
        {"ring_items", ring_items},
    });
}

}  // namespace xqajit
