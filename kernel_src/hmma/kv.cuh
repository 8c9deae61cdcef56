// K and V rows from memory straight into mma fragments: no shared memory between. The order of the summed index is free in a
// product, so each lane takes 16 consecutive bytes, and q (for K) or the output (for V) is permuted alike.
#pragma once

#include "hmma/config.cuh"

#include "common/fragments.cuh"

namespace xqajit::device {

// Consecutive tokens that share a page or sequence index. Eight tokens never straddle a page; with beams each token has its own.
constexpr bool kIndexAToken = Config::kBeamWidth > 1;
constexpr u32 kIndexSpan =
    kIndexAToken ? 8 : (Config::kPageSize == 0 ? Config::kTileTokens : min_of(Config::kPageSize, Config::kTileTokens));
constexpr u32 kIndices = Config::kTileTokens / kIndexSpan;

struct Pages {
    i32 k[kIndices];
    i32 v[kIndexAToken ? 2 * kIndices : kIndices];
};

// A step reads no token outside the share, whose slots may hold NaN and whose page-table entries may be garbage: the nearest one
// of the share stands in, and soften() gives it no weight.
inline u32 nearest(TokenRange share, u32 t) { return min_of(max_of(t, share.begin), share.end - 1); }

inline i32 page_of(KernelArgs const& args, Work const& work, i32 const* page_table, u32 t) {
    u32 const sequence = source_sequence(args, work, t);
    if constexpr (Config::kPageSize == 0) return static_cast<i32>(sequence);
    return page_table[sequence * args.page_table_stride + t / kTokensPerPage];
}

// Indices of the step that starts at token `first`.
inline Pages load_pages(KernelArgs const& args, Work const& work, u32 first, Lane lane) {
    Pages pages;
#pragma unroll
    for (u32 i = 0; i < kIndices; ++i) {
        u32 const t = first + i * kIndexSpan;
        if constexpr (kIndexAToken) {
            pages.k[i] = page_of(args, work, args.k.page_table, nearest(work.share, t + lane.eighth));
#pragma unroll
            for (u32 r = 0; r < 2; ++r)
                pages.v[2 * i + r] = page_of(args, work, args.v.page_table, nearest(work.share, t + 2 * lane.quarter + r));
        } else {
            pages.k[i] = page_of(args, work, args.k.page_table, nearest(work.share, t));
            pages.v[i] = page_of(args, work, args.v.page_table, nearest(work.share, t));  // often the same, but a copy would wait
        }
    }
    return pages;
}

// Addresses of the lane's vector in the rows of one step. Where the step lies wholly in the share they follow from the first
// token of each page by constant strides; else every row has its own.
template <bool kWhole> struct RowAddress {
    KvTensor const& kv;
    TokenRange share;
    u32 first;   // of the step
    u32 token;   // of the lane, among eight
    i64 offset;  // of the lane's vector in a row, with its head

    // Row `token + plus` of eight tokens from first + eight on; `page` is theirs.
    u8 const* row(i32 page, u32 eight, u32 plus) const {
        u8 const* const base = kv.base + offset + page * kv.stride_page;
        if constexpr (kWhole) {
            u32 const start = first + eight / kIndexSpan * kIndexSpan;
            u32 const slot = (Config::kPageSize == 0 ? start : start % kTokensPerPage) + token;
            return base + slot * kv.stride_token + (eight % kIndexSpan + plus) * kv.stride_token;
        } else {
            u32 const t = nearest(share, first + eight + token + plus);
            return base + (Config::kPageSize == 0 ? t : t % kTokensPerPage) * kv.stride_token;
        }
    }
};

constexpr bool kHasWholeSteps = !kIndexAToken;  // a token's page is not its neighbour's

inline bool is_whole(Work const& work, u32 first) {
    return kHasWholeSteps && first >= work.share.begin && first + Config::kTileTokens <= work.share.end;
}

template <bool kWhole>
inline void load_key_rows(KernelArgs const& args, Work const& work, Pages const& pages, u32 first, Lane lane, KeyFragments& keys) {
    RowAddress<kWhole> const address{args.k, work.share, first, lane.eighth, work.kv_head * args.k.stride_head + lane.quarter * 16};
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 const eight = tile * 16 + half * 8;
            u8 const* const row = address.row(pages.k[eight / kIndexSpan], eight, 0);
#pragma unroll
            for (u32 c = 0; c < Config::kChunksK; ++c) {
                u32 const element = c * Config::kChunkK + lane.quarter * Config::kVecElems;
                if (Config::kHeadDim % Config::kChunkK == 0 || element < Config::kHeadDim) {
                    load_streaming(keys.row[tile][half][c], row + c * 64);
                } else {
                    keys.row[tile][half][c] = Vec16{{0, 0, 0, 0}};
                }
            }
        }
    }
}

inline void load_keys(KernelArgs const& args, Work const& work, Pages const& pages, u32 first, Lane lane, KeyFragments& keys) {
    if (is_whole(work, first)) {
        load_key_rows<kHasWholeSteps>(args, work, pages, first, lane, keys);
    } else {
        load_key_rows<false>(args, work, pages, first, lane, keys);
    }
}

template <bool kWhole> inline void load_value_rows(KernelArgs const& args, Work const& work, Pages const& pages, u32 first,
                                                   Lane lane, ValueFragments& values) {
    RowAddress<kWhole> const address{args.v, work.share, first, 2 * lane.quarter,
                                     work.kv_head * args.v.stride_head + lane.eighth * Config::kShape.value_bytes};
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            u32 const eight = tile * 16 + r / 2 * 8;
            u8 const* const row = address.row(pages.v[kIndexAToken ? eight / 8 * 2 + r % 2 : eight / kIndexSpan], eight, r % 2);
#pragma unroll
            for (u32 c = 0; c < Config::kChunksV; ++c) {
                u32 const element = c * Config::kChunkV + lane.eighth * Config::kElemsV;
                if (Config::kHeadDimV % Config::kChunkV == 0 || element < Config::kHeadDimV) {
                    load_streaming(values.row[tile][r][c], row + c * 8 * Config::kShape.value_bytes);
                } else {
                    values.row[tile][r][c] = VecV{};
                }
            }
        }
    }
}

inline void load_values(KernelArgs const& args, Work const& work, Pages const& pages, u32 first, Lane lane,
                        ValueFragments& values) {
    if (is_whole(work, first)) {
        load_value_rows<kHasWholeSteps>(args, work, pages, first, lane, values);
    } else {
        load_value_rows<false>(args, work, pages, first, lane, values);
    }
}

}  // namespace xqajit::device
