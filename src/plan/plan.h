// LaunchPlan: grid, multi-block split and workspace of one launch. Pure.
#pragma once

#include "select/kernel_spec.h"

namespace xqajit {

inline constexpr std::uint32_t kInvariantTokens = 512;  // a sub-sequence's edges under invariant division
inline constexpr std::uint32_t kMaxSubSeq = 6000;       // static division: batch x sub-sequences of all requests
inline constexpr std::uint32_t kMaxSubSeqMla = 500;
inline constexpr std::uint32_t kMostBlocksAnSm = 4;  // of one kernel at once, in any family

// What bounds a launch: everything that sizes it.
struct LaunchBounds {
    std::uint32_t batch = 0;
    std::uint64_t max_len = 0;  // tokens
    std::uint32_t q_len = 1;    // 1..64: query tokens of the longest request
    std::uint32_t num_kv_heads = 1;
    std::int32_t division = XQAJIT_DIVISION_STATIC;  // never DEFAULT: see resolve_division()
    std::uint32_t nb_sub_seq = 0;                    // forced, 1..6000, under static division; 0: the formula
    std::uint32_t sm_count = 1;
    std::uint32_t smem_optin = 0;  // bytes of shared memory that the device grants a block
    bool has_clusters = false;     // the kernel's target has clusters
};

struct LaunchPlan {
    std::uint32_t grid_x = 0;  // 0: nothing to launch. The grid has this one axis: 2^31-1 blocks, where y and z end at 65535
    std::uint32_t block_x = 0;
    std::uint32_t cluster_size = 1;  // consecutive blocks that share a part, and run at once as a cluster; 1: no clusters
    std::uint32_t nb_row_blocks = 0;
    std::uint32_t nb_sub_seq = 0;          // most parts that a request's tokens are cut into, each shared by cluster_size blocks
    std::uint32_t nb_extra_parts = 0;      // balanced division: parts beyond one a request, else 0
    std::uint32_t tokens_per_sub_seq = 0;  // invariant division, else 0
    std::uint32_t nb_slots = 0;            // partial results that the workspace holds; 0 when no request has two parts
    std::uint64_t workspace_bytes = 0;     // exact; 0 when nb_slots is 0
    std::uint32_t dynamic_smem = 0;
    std::uint32_t ring_items = 0;  // gmma: tiles of K or V that each group of warps has on their way; else 0
    std::string to_string() const;
    std::string to_json() const;
};

// DEFAULT becomes static where a number of sub-sequences is asked for, else balanced.
std::int32_t resolve_division(std::int32_t division, std::uint32_t nb_sub_seq);

// INVALID_ARGUMENT where a bound is out of range or the grid does not fit, with both numbers; UNSUPPORTED for a family
// that is not built, and where a block needs more shared memory than smem_optin, with both numbers.
Result<LaunchPlan> make_plan(KernelSpec const& spec, LaunchBounds const& bounds);

// Bytes of dynamic shared memory that no launch of the kernel exceeds, where the device grants a block smem_optin.
std::uint32_t most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin);

// Exact bytes that any launch with batch <= bounds.batch, max_len <= bounds.max_len and q_len <= bounds.q_len can need: at least one
// of them needs them all. 0 where none needs a workspace. Errors as make_plan's.
Result<std::uint64_t> workspace_size(KernelSpec const& spec, LaunchBounds const& bounds);

// A workspace of `bytes` holds its counters in [0, counter_bytes(bytes)) and partials behind: a function of the size alone, so that no
// launch's partials ever lie where another launch keeps counters, whatever shapes share the workspace. A multiple of 256.
std::uint64_t counter_bytes(std::uint64_t workspace_bytes);
// Least workspace, a multiple of 256, that holds so many 4-byte counters, and the partials behind them.
std::uint64_t workspace_for(std::uint64_t counters, std::uint64_t partial_bytes);

// Balanced division: parts beyond one a request. `wave` is the requests that one wave of blocks holds with a part each, `most_parts` what
// max_len lets a request have. Few requests fill one wave and no more, as a second one would be nearly empty, unless `fills` is false; more
// get some to even out their lengths, at most so many half waves, and none where all are equal.
std::uint32_t balanced_extra_parts(std::uint32_t batch, std::uint64_t wave, std::uint32_t most_parts, bool fills = true,
                                   std::uint32_t even_half_waves = 4);

// The most sub-sequences that keep mmha's blocks within one wave: the upper bound of its static division. Grows neither with batch
// nor with num_kv_heads; at least 1.
std::uint32_t mmha_wave_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint32_t sm_count);

// The reference system's multi-block formulas, in integers: where it rounds or floors a float, these give what exact arithmetic gives.
// All return at least 1, none grows with batch, and none shrinks with the length. A count of 0 is taken as 1. mmha divides
// by the first and the last, hmma and gmma by hmma's; the others are the bounds of the families they are named after.
std::uint32_t decode_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t past_len, std::uint32_t sm_count,
                              std::uint32_t max_sub_seq);
std::uint32_t gmma_kernel_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t len, std::uint32_t sm_count);
std::uint32_t hmma_kernel_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t len, std::uint32_t sm_count);
// Not monotone: it shifts by the length.
std::uint32_t spec_gmma_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t past_len, std::uint32_t q_len,
                                 std::uint32_t group_size, std::uint32_t sm_count);
std::uint32_t mla_sub_seqs(std::uint32_t batch, std::uint64_t past_len, std::uint32_t sm_count);

}  // namespace xqajit
