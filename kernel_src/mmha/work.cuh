// Which part of the launch one block owns, and which tokens its rows see.
#pragma once

#include "common/work_division.h"
#include "mmha/config.cuh"

namespace xqajit::device {

struct Work {
    u32 request;  // b
    u32 beam;     // w
    u32 kv_head;
    u32 unit;  // ((b*beam_width + w) * num_kv_heads + kv_head) * nb_row_blocks + row_block
    u32 sub_seq;
    u32 nb_active;       // sub-sequences of this request that have work
    u32 first_row;       // of the kMTile rows: row m is draft token m / G, head m % G of the group
    u32 nb_rows;         // valid rows of the block, 1..kMTile; 0: the block has none
    i64 q_row;           // packed row of the request's first query token
    i32 len;             // tokens visible, the new ones included
    i32 q_len;           // query tokens of this request
    TokenRange visible;  // to any row of the block
    TokenRange share;    // this block's part of it
};

// Tokens that draft token i sees under the causal rule, as [begin, end).
inline TokenRange causal_range(i32 len, i32 q_len, u32 i, u32 sliding_window) {
    i64 const end = static_cast<i64>(len) - q_len + i + 1;
    if (end <= 0) return {0, 0};
    i64 begin = 0;
    if constexpr (Config::kHasWindow) begin = end > sliding_window ? end - sliding_window : 0;
    return {static_cast<u32>(begin), static_cast<u32>(end)};
}

inline Work find_work(KernelArgs const& args) {
    Work work;
    u32 index = blockIdx.x;  // order: contract.h
    u32 const row_block = index % args.nb_row_blocks;
    index /= args.nb_row_blocks;
    work.kv_head = index % args.num_kv_heads;
    index /= args.num_kv_heads;
    work.sub_seq = index % args.nb_sub_seq;
    index /= args.nb_sub_seq;  // b*beam_width + w
    work.unit = (index * args.num_kv_heads + work.kv_head) * args.nb_row_blocks + row_block;
    work.request = index / Config::kBeamWidth;
    work.beam = index % Config::kBeamWidth;

    work.q_len = static_cast<i32>(args.q_len);
    work.q_row = static_cast<i64>(work.request) * args.q_len;
    if constexpr (Config::kSpecDec != SpecDec::kNone) {
        if (args.cu_q_len != nullptr) {
            i32 const first = args.cu_q_len[work.request];
            work.q_row = first;
            work.q_len = args.cu_q_len[work.request + 1] - first;
        }
    }
    work.first_row = row_block * Config::kMTile;
    u32 const rows = static_cast<u32>(work.q_len) * Config::kGroupSize;
    work.nb_rows = work.first_row < rows ? min_of(Config::kMTile, rows - work.first_row) : 0;
    if (work.nb_rows == 0) return work;

    work.len = args.seq_lens[work.request];
    if constexpr (Config::kSpecDec == SpecDec::kTree) {
        work.visible = {0, static_cast<u32>(work.len > 0 ? work.len : 0)};
    } else {
        // Both edges grow with the draft token, so the union reaches from the first row's begin to the last row's end.
        TokenRange const first = causal_range(work.len, work.q_len, work.first_row / Config::kGroupSize, args.sliding_window);
        TokenRange const last =
            causal_range(work.len, work.q_len, (work.first_row + work.nb_rows - 1) / Config::kGroupSize, args.sliding_window);
        work.visible = {first.begin, last.end};
    }
    Granules const granules = granules_of(args.division, args.tokens_per_sub_seq, work.visible);
    work.nb_active = active_sub_seqs(granules, args.nb_sub_seq);
    work.share = sub_seq_range(args.division, granules, work.nb_active, work.sub_seq, work.visible);
    return work;
}

// Whether row `m` of the block sees token t of the block's visible range.
inline bool row_sees(KernelArgs const& args, Work const& work, u32 m, u32 t) {
    if constexpr (Config::kSpecDec == SpecDec::kNone) {
        return true;  // all rows of a plain decode see the same tokens
    } else {
        u32 const i = (work.first_row + m) / Config::kGroupSize;
        if constexpr (Config::kSpecDec == SpecDec::kLinear) {
            TokenRange const range = causal_range(work.len, work.q_len, i, args.sliding_window);
            return t >= range.begin && t < range.end;
        } else {
            i32 const draft = static_cast<i32>(t) - (work.len - work.q_len);
            if (draft < 0) return true;
            u32 const j = static_cast<u32>(draft);
            u32 const word = args.packed_mask[(work.q_row + i) * args.mask_stride_row + j / 32];
            return j == i || (word >> (j % 32) & 1u) != 0;
        }
    }
}

}  // namespace xqajit::device
