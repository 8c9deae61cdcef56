// The two products of a tile by a group of four warps. 16-bit K and V are operands where the copy has put them; 8-bit ones become fp16 on
// their way to registers, each warp 16 tokens of K, and of each segment of V a quarter of its elements.
#pragma once

#include "gmma/kv.cuh"
#include "gmma/wgmma.cuh"

namespace xqajit::device {

constexpr u32 kSegmentItemBytes = Config::kTile * Config::kSegment;
constexpr u32 kTilesOfSegment = Config::kSegmentElems / 64;  // of 64 elements of V

// The element of V that row lane/4 + 8 * half of this warp's 16 is, of tile `t` of 64 elements.
inline u32 value_element(u32 t, u32 half, u32 warp, Lane lane) {
    if constexpr (!Config::k8Bit) return t * 64 + warp * 16 + lane.eighth + 8 * half;
    return t / kTilesOfSegment * Config::kSegmentElems + (warp * 8 + lane.eighth) * (2 * kTilesOfSegment) +
           2 * (t % kTilesOfSegment) + half;
}

// S^T = K Q^T. `query`: see wide_query.cuh.
template <u32 kCount> inline void multiply_keys(u32 item, u32 empty, u32 query, u32 warp, Lane lane, float (&s)[kCount]) {
    bool const tells = lane.eighth == 0 && lane.quarter == 0;
    constexpr u32 kQuerySegmentBytes = Config::kMTile * 128;
    if constexpr (Config::k8Bit) {
        KeyFragments keys;
        load_keys(item, warp * Config::kTileTokens, lane, keys);
        u32 a[Config::kKeySteps][4];
#pragma unroll
        for (u32 k = 0; k < Config::kKeySteps; ++k) {
            HalfPairs const low = widen(keys.row[0][0][k / Config::kStepsK].word[k % Config::kStepsK]);
            HalfPairs const high = widen(keys.row[0][1][k / Config::kStepsK].word[k % Config::kStepsK]);
            a[k][0] = low.low, a[k][1] = high.low, a[k][2] = low.high, a[k][3] = high.high;
        }
        free_item(empty, tells);
        u64 const q = matrix_at(query);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < Config::kKeySteps; ++k)
            multiply<false>(s, a[k], advanced(q, k / 4 * kQuerySegmentBytes + k % 4 * 32), k != 0);
        end_products();
    } else {
        u64 const keys = matrix_at(item), q = matrix_at(query);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < Config::kKeySteps; ++k)
            multiply<Config::kFp16Math, false>(s, advanced(keys, k / 4 * kSegmentItemBytes + k % 4 * 32),
                                               advanced(q, k / 4 * kQuerySegmentBytes + k % 4 * 32), k != 0);
        end_products();
        if (tells) arrive(empty);
    }
}

// V outside the share has weight 0, but its place may hold anything, also NaN: zeros take it. `first`: the tile's first token. All threads
// of the group.
inline void clear_outside(u32 item, u32 first, TokenRange share, u32 barrier, u32 thread) {
    if (first >= share.begin && first + Config::kTile <= share.end) return;
    constexpr u32 kVectors = Config::kSegment / 16;
    for (u32 x = thread; x < Config::kTile * kVectors * Config::kSegments; x += 128) {
        if (!inside(share, first + x / kVectors % Config::kTile)) store_shared(item + x * 16, Vec16{{0, 0, 0, 0}});
    }
    order_before_copies();
    sync_some(barrier, 128);
}

// This lane's elements of a segment of 8-bit V, four of a token, or two of a segment of 64 bytes: [16 tokens][2*(lane%4) + {0, 1, 8, 9}].
inline void load_codes(u32 segment, u32 warp, Lane lane, u32 (&codes)[4][4]) {
    u32 const byte = (warp * 8 + lane.eighth) * (2 * kTilesOfSegment);
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
        u32 const address = segment + vector_offset(2 * lane.quarter + r, byte / 16) + byte % 16;
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            u32 const of_eight = address + i * 8 * Config::kSegment;
            codes[i / 2][i % 2 * 2 + r] = kTilesOfSegment == 1 ? load_shared_u16(of_eight) : load_shared_word(of_eight);
        }
    }
}

// O^T += V^T P^T of one segment of 8-bit V.
template <u32 kCount>
inline void multiply_codes(u32 const (&codes)[4][4], u64 weights, float (&acc)[Config::kValueTiles][kCount], u32 segment) {
    u32 a[4][kTilesOfSegment][4];  // [16 tokens][tile]
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
#pragma unroll
        for (u32 t = 0; t < kTilesOfSegment; ++t) {
            u32 const selector = t == 0 ? 0x5140u : 0x7362u;
            HalfPairs const low = widen(__byte_perm(codes[k][0], codes[k][1], selector));
            HalfPairs const high = widen(__byte_perm(codes[k][2], codes[k][3], selector));
            a[k][t][0] = low.low, a[k][t][1] = low.high, a[k][t][2] = high.low, a[k][t][3] = high.high;
        }
    }
    begin_products();
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
#pragma unroll
        for (u32 t = 0; t < kTilesOfSegment; ++t)
            multiply<true>(acc[segment * kTilesOfSegment + t], a[k][t], advanced(weights, k * 2048), 1);
    }
    end_products();
}

// O^T += V^T P^T. All threads of the group.
template <u32 kCount> inline void multiply_values(u32 item, u32 empty, u32 weights, u32 barrier, u32 warp, Lane lane,
                                                  float (&acc)[Config::kValueTiles][kCount]) {
    bool const tells = lane.eighth == 0 && lane.quarter == 0;
    u64 const p = matrix_at(weights);
    if constexpr (Config::k8Bit) {
        u32 codes[Config::kSegments][4][4];
#pragma unroll
        for (u32 s = 0; s < Config::kSegments; ++s) load_codes(item + s * kSegmentItemBytes, warp, lane, codes[s]);
        free_item(empty, tells);
        sync_some(barrier, 128);  // all warps' weights are there
#pragma unroll
        for (u32 s = 0; s < Config::kSegments; ++s) multiply_codes(codes[s], p, acc, s);
    } else {
        u64 const values = matrix_at(item);
        sync_some(barrier, 128);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {
#pragma unroll
            for (u32 t = 0; t < Config::kValueTiles; ++t)
                multiply<Config::kFp16Math, true>(acc[t], advanced(values, t * kSegmentItemBytes + k * 2048), advanced(p, k * 2048),
                                                  1);
        }
        end_products();
        if (tells) arrive(empty);
    }
}

}  // namespace xqajit::device
