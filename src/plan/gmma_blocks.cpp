// gmma: how many groups a block has, how many blocks an SM, and whether clusters take the launch. kernel_src/gmma/README.md has the
// measurements.
#include <algorithm>

#include "plan/blocks.h"
#include "plan/ceil_div.h"

namespace xqajit {

namespace {

constexpr std::uint32_t kClusterSizes[] = {device::kClusterBlocks, 4, 2};
constexpr std::uint64_t kLeastTokensOfABlock = 128;  // in a cluster: a block with fewer would only be merged
constexpr std::uint64_t kMostTokensOfABlock = 768;   // where clusters leave SMs idle: more take longer than a merge
constexpr std::uint64_t kShortShare = 1024;          // tokens of a block that need no evening out
constexpr std::uint32_t kShortRow = 64;              // bytes

device::GmmaShape shape_of(KernelSpec const& spec) { return device::gmma_shape(gmma_kind(spec)); }

std::uint32_t dynamic_smem(KernelSpec const& spec, std::uint32_t groups, std::uint32_t ring_items) {
    return device::gmma_dynamic_smem(shape_of(spec), spec.head_dim_v, dtype_bytes(spec.kv_dtype), spec.m_tile, groups, ring_items);
}

std::uint32_t block_smem(KernelSpec const& spec, std::uint32_t groups, std::uint32_t ring_items) {
    return device::gmma_static_smem(gmma_kind(spec)) + dynamic_smem(spec, groups, ring_items);
}

struct Rings {
    std::uint32_t groups, items;
};

// What fits of so many groups' rings, of blocks of which an SM has so many.
Rings fitting(KernelSpec const& spec, std::uint32_t groups, std::uint32_t blocks, std::uint32_t smem_optin) {
    while (groups > 1 && block_smem(spec, groups, device::kLeastGmmaItems) > smem_optin) --groups;
    std::uint32_t items = device::gmma_ring_items(shape_of(spec), groups, blocks);
    while (items > device::kLeastGmmaItems && block_smem(spec, groups, items) > smem_optin) --items;
    return {groups, items};
}

// Blocks of all groups that an SM holds.
std::uint32_t large_blocks(KernelSpec const& spec) { return device::gmma_large_blocks(gmma_kind(spec)); }

// A block for each of half the SMs: SMs lie in groups that need not be whole clusters. Clusters of two fit everywhere, and an SM takes two of
// their blocks, as registers allow.
std::uint32_t largest_cluster(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    for (std::uint32_t const size : kClusterSizes) {
        std::uint64_t const most = size == 2 ? std::uint64_t{bounds.sm_count} * large_blocks(spec) : bounds.sm_count / 2;
        if (units * size <= most && bounds.max_len >= kLeastTokensOfABlock * size) return size;
    }
    return 1;
}

// How many blocks an SM gets where requests are cut until all are busy. A copying warp needs as long for an item of 4 KB as for one of 8: with
// short rows two of them are needed to keep the memory busy.
std::uint32_t blocks_for_parts(KernelSpec const& spec) {
    device::GmmaShape const shape = shape_of(spec);
    bool const short_rows = shape.segments * shape.segment_bytes <= kShortRow && shape.form == device::GmmaForm::kNarrow;
    return short_rows ? large_blocks(spec) : 1;
}

// Of few units: clusters that hold a whole unit, so that nothing is merged through global memory; or as many parts as SMs have room for.
// Returns the blocks an SM.
std::uint32_t choose_cluster(BlockShape& block, KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    std::uint32_t const largest = largest_cluster(spec, bounds, units), sms = bounds.sm_count, for_parts = blocks_for_parts(spec);
    if (units <= sms / 32) {  // so few that the largest cluster holds no unit, but for short ones
        block.cluster = largest;
        return 1;
    }
    if (units > sms / 4 * for_parts || bounds.max_len <= kMostTokensOfABlock * largest) {
        block.cluster = largest;
        block.fills = false;
        return units * largest > sms ? 2 : 1;
    }
    block.cluster = std::min(largest, units <= sms / 16 ? 2u : 1u);
    return for_parts;
}

std::uint64_t at_once(LaunchBounds const& bounds, std::uint32_t cluster, std::uint32_t blocks) {
    std::uint64_t const places = std::uint64_t{bounds.sm_count} * blocks / cluster;
    return cluster <= 2 ? places : places * 9 / 10;
}

}  // namespace

BlockShape gmma_blocks(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    BlockShape block;
    std::uint32_t const most_blocks = shape_of(spec).blocks_an_sm;
    std::uint32_t groups = device::kMostGmmaGroups, blocks = 1;  // of a block, and of an SM
    // Invariant division must not ask how many units there are.
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) {
        groups = 1;
        blocks = most_blocks;
    } else if (units > bounds.sm_count) {
        block.fills = false;
        blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(most_blocks, ceil_div(units, std::uint64_t{bounds.sm_count})));
        if (large_blocks(spec) < 2 || units > 2 * std::uint64_t{bounds.sm_count}) groups = 1;
    } else if (may_have_clusters(bounds)) {
        blocks = choose_cluster(block, spec, bounds, units);
    } else {
        blocks = blocks_for_parts(spec);
    }
    // A whole wave of parts more: long requests among short ones need as many. Where lengths are equal, their blocks find nothing to do, and
    // cost up to 2 us: more than they save where a block has few tokens at most.
    bool const short_shares = !block.fills && bounds.max_len <= kShortShare * block.cluster;
    block.even_half_waves = short_shares ? 0 : 2;
    Rings const rings = fitting(spec, groups, blocks, bounds.smem_optin);
    block.threads = device::gmma_threads(rings.groups);
    block.at_once = at_once(bounds, block.cluster, blocks);
    block.ring_items = rings.items;
    block.dynamic_smem = dynamic_smem(spec, rings.groups, rings.items);
    block.least_smem = block_smem(spec, rings.groups, rings.items);
    return block;
}

std::uint32_t gmma_most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin) {
    std::uint32_t most = 0;
    for (std::uint32_t const groups : {1u, device::kMostGmmaGroups}) {
        Rings const rings = fitting(spec, groups, 1, smem_optin);
        most = std::max(most, dynamic_smem(spec, rings.groups, rings.items));
    }
    return most;
}

std::vector<std::uint64_t> gmma_lengths_of_most_parts(std::uint64_t max_len) {
    std::vector<std::uint64_t> lengths = {max_len};
    auto const add = [&](std::uint64_t last) {
        if (last < max_len) lengths.push_back(last);
    };
    add(kMostTokensOfABlock);
    for (std::uint32_t const size : kClusterSizes) {
        add(kLeastTokensOfABlock * size - 1);
        add(kMostTokensOfABlock * size);
    }
    return lengths;
}

}  // namespace xqajit
