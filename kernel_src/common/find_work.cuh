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

// Parts of a request under balanced division. One longer than the launch's max_len gets no more than the workspace has levels for.
inline u32 parts_of(KernelArgs const& args, u32 granules, u64 total) {
    return min_of(balanced_parts(granules, total, args.nb_extra_parts, args.cluster_size), args.nb_sub_seq);
}

// Where each (request, beam) pair has one part. False past the last pair.
inline bool find_only_part(KernelArgs const& args, u32 part, Work& work) {
    work.request = part / Instance::kBeamWidth;
    work.beam = part % Instance::kBeamWidth;
    work.sub_seq = 0;
    work.nb_active = 1;
    work.first_slot = 0;
    return work.request < args.batch;
}

// Balanced division, worked out from the lengths by every warp for itself, 32 requests at a time: neither the host nor another
// kernel plans, no barrier is needed, and a captured graph follows the lengths. False where the requests have fewer parts.
inline bool find_balanced_part(KernelArgs const& args, u32 part, Work& work) {
    constexpr u32 kBeams = Instance::kBeamWidth;
    if (args.nb_extra_parts == 0) return find_only_part(args, part, work);  // whatever the lengths
    if (args.batch == 1) {  // which needs no warp, and has the least time to lose
        u32 const granules = request_granules(args, 0);
        work.request = 0;
        work.nb_active = parts_of(args, granules, granules);
        // Without a division where there is one beam; a beam past the last means no such part.
        work.beam = kBeams == 1 && part < work.nb_active ? 0 : part / work.nb_active;
        work.sub_seq = part - work.beam * work.nb_active;
        work.first_slot = work.nb_active > 1 ? work.beam * work.nb_active : 0;
        return work.beam < kBeams;
    }
    u32 const lane = threadIdx.x % 32;
    u32 const first_granules = lane < args.batch ? request_granules(args, lane) : 0;  // most batches end here
    u64 total = 0;
    u32 largest = 0;
#pragma unroll 1
    for (u32 first = 0; first < args.batch; first += 32) {
        u32 const granules = first == 0 ? first_granules : first + lane < args.batch ? request_granules(args, first + lane) : 0;
        total += __reduce_add_sync(0xffffffffu, granules);  // 2^25 at most for each
        largest = max_of(largest, granules);
    }
    // Nothing to even out: see balanced_parts().
    if (static_cast<u64>(__reduce_max_sync(0xffffffffu, largest)) * args.nb_extra_parts < total)
        return find_only_part(args, part, work);
    u32 parts_before = 0, slots_before = 0;
#pragma unroll 1
    for (u32 first = 0; first < args.batch; first += 32) {
        bool const any = first + lane < args.batch;
        u32 const granules = first == 0 ? first_granules : any ? request_granules(args, first + lane) : 0;
        u32 const parts = any ? parts_of(args, granules, total) : 0;
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

// Where a block is in the grid.
struct Place {
    u32 part, kv_head, row_block, rank;
};

inline Place place_of_block(KernelArgs const& args) {
    u32 const rank = blockIdx.x & (args.cluster_size - 1);  // a power of two
    u32 const in_cluster = blockIdx.x >> (31 - __clz(static_cast<int>(args.cluster_size)));
    u32 const index = divide(in_cluster, args.by_nb_row_blocks);
    u32 const part = divide(index, args.by_num_kv_heads);
    return {part, index - part * args.num_kv_heads, in_cluster - index * args.nb_row_blocks, rank};
}

// This block's part of the work. nb_rows is 0, or sub_seq not below nb_active, where it has none.
inline Work find_work(KernelArgs const& args, Place place) {
    Work work;
    work.kv_head = place.kv_head;
    work.rank = place.rank;
    if (args.division == Division::kBalanced) {
        work.nb_rows = 0;
        if (!find_balanced_part(args, place.part, work)) return work;
    } else {
        find_part(args, place.part, work);
    }
    work.first_slot = (work.first_slot * args.num_kv_heads + work.kv_head) * args.nb_row_blocks + place.row_block;
    work.len = args.seq_lens[work.request];
    find_rows(args, work);
    find_row_block(args, place.row_block, work);
    if (work.nb_rows == 0) return work;
    Granules const granules = granules_of(args.division, args.tokens_per_sub_seq, work.visible);
    work.nb_active = active_sub_seqs(granules, work.nb_active);
    u32 const blocks = args.cluster_size;
    work.share = sub_seq_range(args.division, granules, work.nb_active * blocks, work.sub_seq * blocks + work.rank, work.visible);
    return work;
}

// Asks for the page indices of its request's first 256 pages long before it knows its work: all that a short request has, whose time
// is mostly such latencies. The request is a guess, as if all were equally long. No value is seen, so there is no need to wait for the
// grids before. By the threads from 0 on.
inline void prefetch_pages(KernelArgs const& args, Place place, u32 thread) {
    if constexpr (Instance::kPageSize == 0) return;
    constexpr u32 kIndicesALine = 32, kLines = 8;
    u32 const entry = thread * kIndicesALine;
    if (thread >= kLines || entry >= args.max_pages) return;
    u32 request = 0;
    if (args.batch > 1) {
        u32 const parts = args.division == Division::kBalanced ? 1 + args.nb_extra_parts / args.batch : args.nb_sub_seq;
        request = min_of(place.part / parts / Instance::kBeamWidth, args.batch - 1);
    }
    prefetch_l2(args.k.page_table + static_cast<i64>(request) * Instance::kBeamWidth * args.page_table_stride + entry);
}

}  // namespace xqajit::device
