// hmma: how many warps or teams a block has, and whether clusters take the launch.
#include <algorithm>

#include "kernel_src/common/work_division.h"
#include "kernel_src/hmma/launch.h"
#include "plan/blocks.h"
#include "plan/ceil_div.h"

namespace xqajit {

namespace {

std::uint32_t kv_bytes(KernelSpec const& spec) { return static_cast<std::uint32_t>(dtype_bytes(spec.kv_dtype)); }

device::HmmaShape hmma_shape(KernelSpec const& spec) { return device::hmma_shape(spec.head_dim, kv_bytes(spec), spec.m_tile); }

// A team's threads, or a warp's where each works alone.
std::uint32_t team_threads(KernelSpec const& spec) { return 32 * hmma_shape(spec).team_warps; }

// Bytes of shared memory of a block of so many threads: in all, and of these what is asked for at the launch.
std::uint32_t block_smem(KernelSpec const& spec, std::uint32_t threads) {
    return device::hmma_block_smem(spec.head_dim, kv_bytes(spec), spec.m_tile, threads / team_threads(spec));
}

std::uint32_t dynamic_smem(KernelSpec const& spec, std::uint32_t threads) {
    return threads / team_threads(spec) * hmma_shape(spec).team_smem;
}

// The most threads of one block: what the registers hold, and no more teams than shared memory does; at least one.
std::uint32_t most_threads(KernelSpec const& spec, std::uint32_t smem_optin) {
    std::uint32_t const team = team_threads(spec);
    std::uint32_t threads = hmma_shape(spec).max_threads;
    while (threads > team && block_smem(spec, threads) > smem_optin) threads -= team;
    return threads;
}

// Clusters that surely run at once, one block an SM: the SMs of a GPU lie in groups that need not be whole clusters, so that about half of
// them may be left.
std::uint32_t clusters_at_once(LaunchBounds const& bounds) { return bounds.sm_count / (2 * device::kClusterBlocks); }

// Tokens of each block where clusters take the launch; 0 where they do not. Blocks of a cluster merge faster, but fewer of them run: that
// pays for few units of short shares, where the merge is what takes time (kernel_src/hmma/README.md has the measurement). `units`:
// blocks that the launch has at least.
std::uint64_t cluster_tokens(LaunchBounds const& bounds, std::uint64_t units) {
    constexpr std::uint64_t kMostTokens = 512;  // of a block, where no cluster is left over
    if (!may_have_clusters(bounds)) return 0;
    if (bounds.max_len <= device::kLeastGranules * device::kShareTokens) return 0;  // one block a unit, and no merge
    std::uint64_t const clusters = clusters_at_once(bounds), of_unit = clusters / units;
    if (of_unit == 0) return 0;
    std::uint64_t const tokens = ceil_div(bounds.max_len, of_unit * device::kClusterBlocks);
    return tokens * clusters <= kMostTokens * of_unit * units ? tokens : 0;
}

BlockShape block_of(KernelSpec const& spec, std::uint32_t threads, std::uint64_t at_once, std::uint32_t cluster = 1) {
    return {threads, cluster, at_once, dynamic_smem(spec, threads), block_smem(spec, threads)};
}

}  // namespace

BlockShape hmma_blocks(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units) {
    // One large block an SM needs fewer parts; where there are units enough, two small ones fill each other's gaps
    // (kernel_src/hmma/README.md has the measurement). Invariant division must not ask how many there are.
    std::uint32_t const threads = most_threads(spec, bounds.smem_optin);
    std::uint32_t const team = team_threads(spec);
    if (std::uint64_t const tokens = cluster_tokens(bounds, units); tokens != 0) {
        // Two steps of 16 tokens a warp at least: more warps would only be merged.
        std::uint32_t const useful = std::max<std::uint32_t>(256, static_cast<std::uint32_t>(tokens));
        std::uint32_t const taken = std::max(team, std::min(threads, useful) / team * team);
        BlockShape block = block_of(spec, taken, clusters_at_once(bounds), device::kClusterBlocks);
        block.even_half_waves = 0;  // a second wave of clusters would take longer than the lengths can be uneven
        return block;
    }
    std::uint32_t const half = threads / team / 2 * team;
    bool const many = bounds.division == XQAJIT_DIVISION_INVARIANT || 2 * units >= 3 * std::uint64_t{bounds.sm_count};
    // A block takes kReservedSmem besides, and an SM has that much more than one block may have. A small block that has the SM to itself
    // would leave half of it idle.
    constexpr std::uint32_t kReservedSmem = 1024;
    bool const two = half != 0 && 2 * block_smem(spec, half) + kReservedSmem <= bounds.smem_optin;
    std::uint64_t const sms = bounds.sm_count;
    return many && two ? block_of(spec, half, 2 * sms) : block_of(spec, threads, sms);
}

std::uint32_t hmma_most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin) {
    return dynamic_smem(spec, most_threads(spec, smem_optin));
}

}  // namespace xqajit
