// gmma: how many groups a block has, how many blocks an SM, and whether clusters take the launch.
#include <algorithm>

#include "kernel_src/gmma/launch.h"
#include "plan/blocks.h"

namespace xqajit {

namespace {

// The policy. Where every SM has a block without cutting a request, small blocks share an SM and fill each other's gaps: as many as
// gmma_shape() says, of one group, without clusters. Where not, blocks are as large as they get, and the largest cluster of these for
// which there are SMs enough takes each part, under balanced division.
constexpr std::uint32_t kClusterSizes[] = {device::kClusterBlocks, 4, 2};
constexpr std::uint32_t kFewestSms = 64;             // with clusters: a small GPU, or a slice, may have no group of SMs for one
constexpr std::uint64_t kLeastTokensOfABlock = 128;  // in a cluster: a block with fewer would only be merged
constexpr std::uint32_t kBlocksAnSmInClusters = 2;   // else one
// Of the clusters that all SMs together have room for this many surely run at once: SMs lie in groups that need not be whole clusters.
constexpr std::uint64_t kRunning = 3, kOf = 4;

constexpr std::uint32_t kReservedSmem = 1024;  // of each block, and an SM has as much more than one block may have
constexpr std::uint32_t kSmemStep = 128;       // of what a launch asks for
constexpr std::uint32_t kLeastItems = 2;       // of a ring: one to read, one to fill
constexpr std::uint32_t kGroupWarps = 4;

std::uint32_t static_smem(KernelSpec const& spec) { return device::gmma_static_smem(spec.head_dim, spec.m_tile); }

// Bytes of dynamic shared memory that a block of so many groups needs: the ring, whose place the warps' partial results take at the end.
std::uint32_t least_dynamic_smem(KernelSpec const& spec, std::uint32_t groups) {
    std::uint32_t const ring = kLeastItems * device::gmma_shape(spec.head_dim, dtype_bytes(spec.kv_dtype)).item_bytes;
    std::uint32_t const partials = kGroupWarps * groups * device::partial_floats(spec.m_tile, spec.head_dim_v) * sizeof(float);
    return device::kGmmaAlignment + (std::max(ring, partials) + kSmemStep - 1) / kSmemStep * kSmemStep;
}

// And what it gets as one of so many on an SM.
std::uint32_t granted_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin, std::uint32_t per_sm) {
    std::uint32_t const share = (smem_optin + kReservedSmem) / per_sm, fixed = kReservedSmem + static_smem(spec);
    return share <= fixed ? 0 : (share - fixed) / kSmemStep * kSmemStep;
}

std::uint32_t cluster_size(LaunchBounds const& bounds, std::uint64_t units) {
    if (!bounds.has_clusters || bounds.division != XQAJIT_DIVISION_BALANCED || bounds.sm_count < kFewestSms) return 1;
    for (std::uint32_t const size : kClusterSizes)
        if (units * size <= bounds.sm_count && bounds.max_len >= kLeastTokensOfABlock * size) return size;
    return 1;
}

}  // namespace

BlockShape gmma_blocks(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    BlockShape block;
    block.every_sm_has_one = units >= bounds.sm_count;
    // Invariant division must not ask how many units there are.
    bool const small = block.every_sm_has_one || bounds.division == XQAJIT_DIVISION_INVARIANT;
    std::uint32_t groups = small ? 1 : device::kMostGmmaGroups;
    block.cluster = small ? 1 : cluster_size(bounds, units);
    std::uint32_t per_sm = block.cluster > 1 ? kBlocksAnSmInClusters : 1;
    if (small) per_sm = device::gmma_shape(spec.head_dim, dtype_bytes(spec.kv_dtype)).blocks_an_sm;
    while (least_dynamic_smem(spec, groups) > granted_dynamic_smem(spec, bounds.smem_optin, per_sm) && groups * per_sm > 1)
        --(groups > 1 ? groups : per_sm);
    block.threads = device::gmma_threads(groups);
    block.dynamic_smem = granted_dynamic_smem(spec, bounds.smem_optin, per_sm);
    block.least_smem = static_smem(spec) + least_dynamic_smem(spec, groups);
    std::uint64_t const blocks = std::uint64_t{bounds.sm_count} * per_sm;
    block.at_once = block.cluster > 1 ? blocks / block.cluster * kRunning / kOf : blocks;
    return block;
}

std::uint32_t gmma_most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin) {
    return granted_dynamic_smem(spec, smem_optin, 1);
}

// Blocks that find nothing to do end the grid, and cost time.
std::uint64_t gmma_most_extra_parts(std::uint64_t wave) { return std::max<std::uint64_t>(1, wave / 2); }

std::vector<std::uint64_t> gmma_lengths_of_most_parts(std::uint64_t max_len) {
    std::vector<std::uint64_t> lengths;
    for (std::uint32_t const size : kClusterSizes)
        if (kLeastTokensOfABlock * size <= max_len) lengths.push_back(kLeastTokensOfABlock * size - 1);
    lengths.push_back(max_len);
    return lengths;
}

}  // namespace xqajit
