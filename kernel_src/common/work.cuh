// Which part of the launch one block owns, and which tokens its rows see.
#pragma once

#include "common/instance.cuh"
#include "common/work_division.h"

namespace xqajit::device {

// What one block works on: a part of a unit, or its own share of one that a cluster has.
struct Work {
    u32 request;  // b
    u32 beam;     // w
    u32 kv_head;
    u32 sub_seq;         // which of the unit's parts
    u32 rank;            // which of the part's blocks
    u32 nb_active;       // parts that the unit has
    u32 first_slot;      // place of the first part's partial result in the workspace; the next ones' follow every slot_stride()
    u32 first_row;       // of the kMTile rows: row m is draft token m / G, head m % G of the group
    u32 nb_rows;         // valid rows of the block, 1..kMTile; 0: the block has none
    i64 q_row;           // packed row of the request's first query token
    i32 len;             // tokens visible, the new ones included
    i32 q_len;           // query tokens of this request
    TokenRange visible;  // to any row of the block
    TokenRange common;   // visible to every row of the block: no mask there
    TokenRange share;    // this block's part of the visible tokens
};

inline bool has_work(Work const& work) { return work.nb_rows != 0 && work.sub_seq < work.nb_active; }

// Units that a part is cut into, one slot each: KV heads and row blocks.
inline u32 slot_stride(KernelArgs const& args) { return args.num_kv_heads * args.nb_row_blocks; }

// Tokens that draft token i sees under the causal rule, as [begin, end).
inline TokenRange causal_range(i32 len, i32 q_len, u32 i, u32 sliding_window) {
    i64 const end = static_cast<i64>(len) - q_len + i + 1;
    if (end <= 0) return {0, 0};
    i64 begin = 0;
    if constexpr (Instance::kHasWindow) begin = end > sliding_window ? end - sliding_window : 0;
    return {static_cast<u32>(begin), static_cast<u32>(end)};
}

// The query rows of request work.request: q_row and q_len.
inline void find_rows(KernelArgs const& args, Work& work) {
    work.q_len = static_cast<i32>(args.q_len);
    work.q_row = static_cast<i64>(work.request) * args.q_len;
    if constexpr (Instance::kSpecDec != SpecDec::kNone) {
        if (args.cu_q_len != nullptr) {
            i32 const first = args.cu_q_len[work.request];
            work.q_row = first;
            work.q_len = args.cu_q_len[work.request + 1] - first;
        }
    }
}

// Tokens visible to any of the draft tokens first..last of a request.
inline TokenRange visible_range(KernelArgs const& args, i32 len, i32 q_len, u32 first, u32 last) {
    if constexpr (Instance::kSpecDec == SpecDec::kTree) return {0, static_cast<u32>(max(len, 0))};
    // Both edges grow with the draft token, so the union reaches from the first one's begin to the last one's end.
    return {causal_range(len, q_len, first, args.sliding_window).begin, causal_range(len, q_len, last, args.sliding_window).end};
}

// The rows of row block `row_block`, and the tokens that they see.
inline void find_row_block(KernelArgs const& args, u32 row_block, Work& work) {
    work.first_row = row_block * Instance::kMTile;
    u32 const rows = static_cast<u32>(work.q_len) * Instance::kGroupSize;
    work.nb_rows = work.first_row < rows ? min_of(Instance::kMTile, rows - work.first_row) : 0;
    if (work.nb_rows == 0) return;
    u32 const first = work.first_row / Instance::kGroupSize, last = (work.first_row + work.nb_rows - 1) / Instance::kGroupSize;
    work.visible = visible_range(args, work.len, work.q_len, first, last);
    if constexpr (Instance::kSpecDec == SpecDec::kTree) {
        work.common = {0, static_cast<u32>(max(work.len - work.q_len, 0))};
    } else {
        work.common = {causal_range(work.len, work.q_len, last, args.sliding_window).begin,
                       causal_range(work.len, work.q_len, first, args.sliding_window).end};
    }
}

// Whether row `m` of the block sees token t of the block's visible range.
inline bool row_sees(KernelArgs const& args, Work const& work, u32 m, u32 t) {
    if constexpr (Instance::kSpecDec == SpecDec::kNone) {
        return true;  // all rows of a plain decode see the same tokens
    } else {
        u32 const i = (work.first_row + m) / Instance::kGroupSize;
        if constexpr (Instance::kSpecDec == SpecDec::kLinear) {
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

// Of the 64 tokens from `first` on, those that row `m` sees of the block's visible range: bit t is token first + t's.
inline u64 tokens_seen(KernelArgs const& args, Work const& work, u32 m, u32 first) {
    if constexpr (Instance::kSpecDec == SpecDec::kNone) return ~u64{0};
    if (m >= work.nb_rows) return 0;
    u32 const i = (work.first_row + m) / Instance::kGroupSize;
    if constexpr (Instance::kSpecDec == SpecDec::kLinear)
        return tokens_inside(causal_range(work.len, work.q_len, i, args.sliding_window), first);
    return tokens_of_tree(args.packed_mask + (work.q_row + i) * args.mask_stride_row, work.len, work.q_len, i, first);
}

constexpr u32 kTokensPerPage = max_of(Instance::kPageSize, 1);  // a divisor, also where contiguous KV has no pages

// The sequence whose cache holds token t of beam w (contract: cache_indirection counts from ctx_len on).
inline u32 source_sequence(KernelArgs const& args, Work const& work, u32 t) {
    if constexpr (Instance::kBeamWidth == 1) return work.request;
    u32 const sequence = work.request * Instance::kBeamWidth;
    if (static_cast<i32>(t) < args.ctx_lens[work.request]) return sequence;
    return sequence + static_cast<u32>(args.cache_indirection[(static_cast<i64>(sequence) + work.beam) * args.capacity + t]);
}

}  // namespace xqajit::device
