// Block index to work, under each division.
#pragma once

#include "common/work.cuh"

namespace xqajit::device {

// Static and invariant division: every (b, beam w) pair has nb_sub_seq parts in the grid.
inline void find_part(KernelArgs const& args, u32 part, Work& work) {
    u32 const sequence = part / args.nb_sub_seq;
    work.request = sequence / Instance::kBeamWidth;
    work.beam = sequence % Instance::kBeamWidth;
    work.sub_seq = part % args.nb_sub_seq;
    work.nb_active = args.nb_sub_seq;
    work.first_slot = sequence * args.nb_sub_seq;
}

// Granules of all visible tokens of a request.
inline u32 request_granules(KernelArgs const& args, u32 request) {
    Work work;
    work.request = request;
    find_rows(args, work);
    if (work.q_len <= 0) return 0;
    TokenRange const visible = visible_range(args, args.seq_lens[request], work.q_len, 0, static_cast<u32>(work.q_len) - 1);
    return granules_of(Division::kBalanced, 0, visible).count;
}

// This lane's value and those of the lanes below it.
inline u32 sum_to_lane(u32 value) {
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        u32 const below = __shfl_up_sync(0xffffffffu, value, distance);
        if (threadIdx.x % 32 >= distance) value += below;
    }
    return value;
}

// Balanced division, worked out from the lengths by every warp for itself, 32 requests at a time: neither the host nor another
// kernel plans, no barrier is needed, and a captured graph follows the lengths. False where the requests have fewer parts.
inline bool find_balanced_part(KernelArgs const& args, u32 part, Work& work) {
    constexpr u32 kBeams = Instance::kBeamWidth;
    u32 const lane = threadIdx.x % 32;
    u32 const first_granules = lane < args.batch ? request_granules(args, lane) : 0;  // most batches end here
    u64 total = 0;
#pragma unroll 1
    for (u32 first = 0; first < args.batch; first += 32) {
        u64 granules = first == 0 ? first_granules : first + lane < args.batch ? request_granules(args, first + lane) : 0;
#pragma unroll
        for (u32 mask = 16; mask >= 1; mask /= 2) granules += __shfl_xor_sync(0xffffffffu, granules, mask);
        total += granules;
    }
    u32 parts_before = 0, slots_before = 0;
#pragma unroll 1
    for (u32 first = 0; first < args.batch; first += 32) {
        bool const any = first + lane < args.batch;
        u32 const granules = first == 0 ? first_granules : any ? request_granules(args, first + lane) : 0;
        // A request longer than the launch's max_len gets no more parts than the workspace has levels for.
        u32 const parts = any ? min_of(balanced_parts(granules, total, args.nb_extra_parts), args.nb_sub_seq) : 0;
        u32 const slots = parts > 1 ? parts : 0;
        u32 const parts_end = parts_before + sum_to_lane(parts) * kBeams, slots_end = slots_before + sum_to_lane(slots) * kBeams;
        u32 const past = __ballot_sync(0xffffffffu, parts_end > part);
        if (past != 0) {
            u32 const found = static_cast<u32>(__ffs(static_cast<int>(past))) - 1;
            work.request = first + found;
            work.nb_active = __shfl_sync(0xffffffffu, parts, found);
            u32 const offset = part - __shfl_sync(0xffffffffu, parts_end - parts * kBeams, found);
            work.beam = offset / work.nb_active;
            work.sub_seq = offset % work.nb_active;
            work.first_slot = __shfl_sync(0xffffffffu, slots_end - slots * kBeams, found) + work.beam * work.nb_active;
            return true;
        }
        parts_before = __shfl_sync(0xffffffffu, parts_end, 31);
        slots_before = __shfl_sync(0xffffffffu, slots_end, 31);
    }
    return false;
}

// This block's part of the work. nb_rows is 0, or sub_seq not below nb_active, where it has none.
inline Work find_work(KernelArgs const& args) {
    Work work;
    u32 const row_block = blockIdx.x % args.nb_row_blocks;
    u32 const index = blockIdx.x / args.nb_row_blocks;
    work.kv_head = index % args.num_kv_heads;
    u32 const part = index / args.num_kv_heads;
    if (args.division == Division::kBalanced) {
        work.nb_rows = 0;
        if (!find_balanced_part(args, part, work)) return work;
    } else {
        find_part(args, part, work);
    }
    work.first_slot = (work.first_slot * args.num_kv_heads + work.kv_head) * args.nb_row_blocks + row_block;
    work.len = args.seq_lens[work.request];
    find_rows(args, work);
    find_row_block(args, row_block, work);
    if (work.nb_rows == 0) return work;
    Granules const granules = granules_of(args.division, args.tokens_per_sub_seq, work.visible);
    work.nb_active = active_sub_seqs(granules, work.nb_active);
    work.share = sub_seq_range(args.division, granules, work.nb_active, work.sub_seq, work.visible);
    return work;
}

}  // namespace xqajit::device
