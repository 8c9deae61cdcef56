#include "plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "kernel_src/common/work_division.h"
#include "kernel_src/hmma/launch.h"
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

// How the family's blocks share an SM.
struct BlockShape {
    std::uint32_t threads;
    std::uint32_t per_sm;       // of them at once
    std::uint32_t cluster = 1;  // that share a part
};

std::uint64_t partial_bytes(KernelSpec const& spec) { return device::partial_floats(spec.m_tile, spec.head_dim_v) * sizeof(float); }

std::uint32_t kv_bytes(KernelSpec const& spec) { return static_cast<std::uint32_t>(dtype_bytes(spec.kv_dtype)); }

device::HmmaShape hmma_shape(KernelSpec const& spec) { return device::hmma_shape(spec.head_dim, kv_bytes(spec), spec.m_tile); }

// A team's threads, or a warp's where each works alone.
std::uint32_t team_threads(KernelSpec const& spec) { return 32 * hmma_shape(spec).team_warps; }

// Bytes of shared memory that a block of so many threads needs: in all, and of these what is asked for at the launch. No other family
// asks for any.
std::uint32_t block_smem(KernelSpec const& spec, std::uint32_t threads) {
    if (spec.family != Family::kHmma) return 0;
    return device::hmma_block_smem(spec.head_dim, kv_bytes(spec), spec.m_tile, threads / team_threads(spec));
}

std::uint32_t dynamic_smem(KernelSpec const& spec, std::uint32_t threads) {
    return spec.family != Family::kHmma ? 0 : threads / team_threads(spec) * hmma_shape(spec).team_smem;
}

// The most threads of one block: what the registers hold, and no more teams than shared memory does; at least one.
std::uint32_t most_threads(KernelSpec const& spec, std::uint32_t smem_optin) {
    std::uint32_t const team = team_threads(spec);
    std::uint32_t threads = hmma_shape(spec).max_threads;
    while (threads > team && block_smem(spec, threads) > smem_optin) threads -= team;
    return threads;
}

// Clusters that surely run at once, one block an SM: the SMs of a GPU lie in groups that need not be whole clusters, so that about half of
// them may be left. A small GPU, or a slice of one, may have no group that is large enough.
std::uint32_t clusters_at_once(LaunchBounds const& bounds) {
    constexpr std::uint32_t kFewestSms = 64;
    return bounds.sm_count < kFewestSms ? 0 : bounds.sm_count / (2 * device::kClusterBlocks);
}

// Tokens of each block where clusters take the launch; 0 where they do not. Blocks of a cluster merge faster, but fewer of them run: that
// pays for few units of short shares, where the merge is what takes time (kernel_src/hmma/README.md has the measurement). `units`:
// blocks that the launch has at least.
std::uint64_t cluster_tokens(LaunchBounds const& bounds, std::uint64_t units) {
    constexpr std::uint64_t kMostTokens = 512;  // of a block, where no cluster is left over
    if (!bounds.has_clusters || bounds.division != XQAJIT_DIVISION_BALANCED) return 0;
    if (bounds.max_len <= device::kLeastGranules * device::kShareTokens) return 0;  // one block a unit, and no merge
    std::uint64_t const clusters = clusters_at_once(bounds), of_unit = clusters / units;
    if (of_unit == 0) return 0;
    std::uint64_t const tokens = ceil_div(bounds.max_len, of_unit * device::kClusterBlocks);
    return tokens * clusters <= kMostTokens * of_unit * units ? tokens : 0;
}

BlockShape block_shape(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    // MLA's row blocks fill an SM by themselves: more parts would only be merged.
    if (spec.family == Family::kMmha) return {device::kMmhaThreads, spec.mla ? 1u : kMostBlocksAnSm};
    // One large block an SM needs fewer parts; where there are units enough, two small ones fill each other's gaps
    // (kernel_src/hmma/README.md has the measurement). Invariant division must not ask how many there are.
    std::uint32_t const threads = most_threads(spec, bounds.smem_optin);
    std::uint32_t const team = team_threads(spec);
    if (std::uint64_t const tokens = cluster_tokens(bounds, units); tokens != 0) {
        // Two steps of 16 tokens a warp at least: more warps would only be merged.
        std::uint32_t const useful = std::max<std::uint32_t>(256, static_cast<std::uint32_t>(tokens));
        return {std::max(team, std::min(threads, useful) / team * team), 1, device::kClusterBlocks};
    }
    std::uint32_t const half = threads / team / 2 * team;
    bool const many = bounds.division == XQAJIT_DIVISION_INVARIANT || 2 * units >= 3 * std::uint64_t{bounds.sm_count};
    // A block takes kReservedSmem besides, and an SM has that much more than one block may have. A small block that has the SM to itself
    // would leave half of it idle.
    constexpr std::uint32_t kReservedSmem = 1024;
    bool const two = half != 0 && 2 * block_smem(spec, half) + kReservedSmem <= bounds.smem_optin;
    return many && two ? BlockShape{half, 2} : BlockShape{threads, 1};
}

std::uint64_t sub_seqs(KernelSpec const& spec, LaunchBounds const& bounds) {
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) return std::max<std::uint64_t>(ceil_div(bounds.max_len, kInvariantTokens), 1);
    if (bounds.nb_sub_seq != 0) return bounds.nb_sub_seq;
    // Each beam reads its own KV, as a request does.
    std::uint64_t const requests = std::min<std::uint64_t>(std::uint64_t{bounds.batch} * spec.beam_width, UINT32_MAX);
    std::uint32_t const count = static_cast<std::uint32_t>(requests);
    if (spec.mla) return mla_sub_seqs(count, bounds.max_len, bounds.sm_count);
    if (spec.family == Family::kHmma) return hmma_kernel_sub_seqs(count, bounds.num_kv_heads, bounds.max_len, bounds.sm_count);
    return std::min(decode_sub_seqs(count, bounds.num_kv_heads, bounds.max_len, bounds.sm_count, kMaxSubSeq),
                    mmha_wave_sub_seqs(count, bounds.num_kv_heads, bounds.sm_count));
}

// The parts of all requests under balanced division, and the most that one has.
struct BalancedParts {
    std::uint32_t extra;
    std::uint32_t most;
};

BalancedParts balanced_parts(KernelSpec const& spec, LaunchBounds const& bounds, std::uint32_t nb_row_blocks, BlockShape block) {
    // mmha leaves its row blocks out: they read the same KV, and more parts measured better than fewer there.
    std::uint64_t const blocks_of_part =
        std::uint64_t{bounds.num_kv_heads} * spec.beam_width * (spec.family == Family::kMmha ? 1 : nb_row_blocks);
    std::uint64_t const at_once = block.cluster > 1 ? clusters_at_once(bounds) : std::uint64_t{bounds.sm_count} * block.per_sm;
    std::uint64_t const wave = std::max<std::uint64_t>(1, at_once / blocks_of_part);
    std::uint64_t const granules = ceil_div(bounds.max_len, device::kShareTokens);
    std::uint32_t const most =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(granules / (device::kLeastGranules * block.cluster), 1, kMaxGridX));
    std::uint32_t extra = balanced_extra_parts(bounds.batch, static_cast<std::uint32_t>(wave), most);
    // A second wave of clusters would take longer than the lengths can be uneven.
    if (block.cluster > 1) extra = std::min(extra, static_cast<std::uint32_t>(wave - std::min<std::uint64_t>(wave, bounds.batch)));
    return {extra, std::min(extra + 1, most)};
}

}  // namespace

std::int32_t resolve_division(std::int32_t division, std::uint32_t nb_sub_seq) {
    if (division != XQAJIT_DIVISION_DEFAULT) return division;
    return nb_sub_seq == 0 ? XQAJIT_DIVISION_BALANCED : XQAJIT_DIVISION_STATIC;
}

std::uint32_t balanced_extra_parts(std::uint32_t batch, std::uint32_t wave, std::uint32_t most_parts) {
    if (batch == 0) return 0;
    std::uint64_t const fill = batch < wave ? wave - batch : 0;
    std::uint64_t const even = std::min<std::uint64_t>(batch - 1, 2 * std::uint64_t{wave});
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(std::max(fill, even), std::uint64_t{batch} * (most_parts - 1)));
}

std::uint32_t most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin) {
    return spec.family == Family::kHmma ? dynamic_smem(spec, most_threads(spec, smem_optin)) : 0;
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
    if (std::uint32_t const smem = block_smem(spec, block.threads); smem > bounds.smem_optin) {
        return unsupported(fmt::format("a block of {} needs {} bytes of shared memory: the device grants a block {}",
                                       to_string(spec), smem, bounds.smem_optin));
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
    plan.workspace_bytes =
        workspace_for(std::uint64_t{plan.nb_slots} * device::merge_levels(plan.nb_sub_seq), plan.nb_slots * partial_bytes(spec));
    plan.dynamic_smem = dynamic_smem(spec, block.threads);
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
    });
}

}  // namespace xqajit
