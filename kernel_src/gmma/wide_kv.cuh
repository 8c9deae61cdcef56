// The two products of a tile by a group of four warps. 16-bit K and V, and K in fp8 math, are operands where the copy has put them. Other 8-bit
// codes go to registers, each warp 16 tokens of K, and of each segment of V a quarter of its elements; without fp8 math they become fp16.
#pragma once

#include "gmma/tile.cuh"

namespace xqajit::device {

constexpr u32 kTilesOfSegment = Config::kSegmentElems / 64;  // of 64 elements of V

// The element of V that row lane/4 + 8 * half of this warp's 16 is, of tile `t` of 64 elements.
inline u32 value_element(u32 t, u32 half, u32 warp, Lane lane) {
    if constexpr (!Config::k8Bit) return t * 64 + warp * 16 + lane.eighth + 8 * half;
    return t / kTilesOfSegment * Config::kSegmentElems + (warp * 8 + lane.eighth) * (2 * kTilesOfSegment) +
           2 * (t % kTilesOfSegment) + half;
}

// S^T = K Q^T. `query`: see wgmma_query.cuh.
template <u32 kCount>
inline void multiply_keys(u32 item, u32 empty, u32 query, u32 warp, Lane lane, bool tells, float (&s)[kCount]) {
    constexpr u32 kQuerySegmentBytes = Config::kMTile * kQueryRowBytes;
    if constexpr (Config::kFp8Math) {
        constexpr u32 kSteps = Config::kSegment / 32;  // of a segment
        u64 const keys = matrix_at<Config::kSegment>(uniform(item)), q = matrix_at<Config::kSegment>(uniform(query));
        begin_products();
#pragma unroll
        for (u32 k = 0; k < Config::kKeySteps; ++k)
            multiply_fp8(s, advanced(keys, k / kSteps * kSegmentItemBytes + k % kSteps * 32),
                         advanced(q, k / kSteps * kQuerySegmentBytes + k % kSteps * 32), k != 0);
        end_products();
        if (tells) arrive(empty);
    } else if constexpr (Config::k8Bit) {
        u64 const q = matrix_at(uniform(query));
#pragma unroll
        for (u32 c = 0; c < Config::kChunksK; ++c) {  // at once they have no registers
            Vec16 const low = load_key(item, warp * Config::kTileTokens, c, lane);
            Vec16 const high = load_key(item, warp * Config::kTileTokens + 8, c, lane);
            if (c + 1 == Config::kChunksK) free_item(empty, tells);
            u32 a[Config::kStepsK][4];
#pragma unroll
            for (u32 i = 0; i < Config::kStepsK; ++i) {
                HalfPairs const wide_low = widen(low.word[i]), wide_high = widen(high.word[i]);
                a[i][0] = wide_low.low, a[i][1] = wide_high.low, a[i][2] = wide_low.high, a[i][3] = wide_high.high;
            }
            begin_products();
#pragma unroll
            for (u32 i = 0; i < Config::kStepsK; ++i) {
                u32 const k = c * Config::kStepsK + i;
                multiply<true, false>(s, a[i], advanced(q, k / 4 * kQuerySegmentBytes + k % 4 * 32), k != 0);
            }
            end_products();
        }
    } else {
        u64 const keys = matrix_at(uniform(item)), q = matrix_at(uniform(query));
        begin_products();
#pragma unroll
        for (u32 k = 0; k < Config::kKeySteps; ++k)
            multiply<Config::kFp16Math, false>(s, advanced(keys, k / 4 * kSegmentItemBytes + k % 4 * 32),
                                               advanced(q, k / 4 * kQuerySegmentBytes + k % 4 * 32), k != 0);
        end_products();
        if (tells) arrive(empty);
    }
}

// Where this lane finds its elements of a segment of 8-bit V, four of a token, or two of a segment of 64 bytes: of token
// 2 * (lane%4).
inline u32 codes_offset(u32 warp, Lane lane) {
    u32 const byte = (warp * 8 + lane.eighth) * (2 * kTilesOfSegment);
    return vector_offset(2 * lane.quarter, byte / 16) + byte % 16;
}

// [16 tokens][2*(lane%4) + {0, 1, 8, 9}]
inline void load_codes(u32 segment, u32 offset, u32 (&codes)[4][4]) {
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
#pragma unroll
        for (u32 i = 0; i < 8; ++i) {
            // The next token's vectors are swapped by twos in rows of 128 bytes: see vector_offset().
            u32 const of_token = r == 0 ? offset : (offset ^ (Config::kSegment == 128 ? 16 : 0)) + Config::kSegment;
            u32 const address = segment + of_token + i * 8 * Config::kSegment;
            codes[i / 2][i % 2 * 2 + r] = kTilesOfSegment == 1 ? load_shared_u16(address) : load_shared_word(address);
        }
    }
}

// O^T += V^T P^T of one segment of 8-bit V that becomes fp16.
template <u32 kCount>
inline void multiply_codes(u32 const (&codes)[4][4], u32 weights, float (&acc)[Config::kValueTiles][kCount], u32 segment) {
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
    u64 const p = matrix_at(uniform(weights));
    begin_products();
#pragma unroll
    for (u32 k = 0; k < 4; ++k) {
#pragma unroll
        for (u32 t = 0; t < kTilesOfSegment; ++t)
            multiply<true, true>(acc[segment * kTilesOfSegment + t], a[k][t], advanced(p, k * 2048), 1);
    }
    end_products();
}

// The same of codes that stay codes. A step's token 4 * (lane%4) + i of 16 is 2 * (lane%4) + {0, 1, 8, 9} of the tile's, as in the weights.
// The tensor cores add products of e4m3 to what is large by then with few of their bits: a tile's are summed by themselves, and then in
// float32.
template <u32 kCount>
inline void multiply_fp8_codes(u32 const (&codes)[4][4], u32 weights, float (&acc)[Config::kValueTiles][kCount], u32 segment) {
    u64 const p = matrix_at<64>(uniform(weights));
#pragma unroll
    for (u32 t = 0; t < kTilesOfSegment; ++t) {
        u32 a[2][4];  // [32 tokens]
#pragma unroll
        for (u32 k = 0; k < 4; ++k) {  // four tokens of two elements into two elements of four tokens
            u32 const selector = t == 0 ? 0x5140u : 0x7362u;
            u32 const low = __byte_perm(codes[k][0], codes[k][1], selector), high = __byte_perm(codes[k][2], codes[k][3], selector);
            a[k / 2][k % 2 * 2] = __byte_perm(low, high, 0x5410);
            a[k / 2][k % 2 * 2 + 1] = __byte_perm(low, high, 0x7632);
        }
        float of_tile[kCount];
        begin_products();
#pragma unroll
        for (u32 k = 0; k < 2; ++k) multiply_fp8(of_tile, a[k], advanced(p, k * 32), k != 0);
        end_products();
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) acc[segment * kTilesOfSegment + t][i] += of_tile[i];
    }
}

// O^T += V^T P^T. All threads of the group.
template <u32 kCount> inline void multiply_values(u32 item, u32 empty, u32 weights, u32 barrier, u32 warp, Lane lane, bool tells,
                                                  float (&acc)[Config::kValueTiles][kCount]) {
    if constexpr (Config::k8Bit) {
#pragma unroll
        for (u32 s = 0; s < Config::kSegments; ++s) {
            u32 codes[4][4];
            load_codes(item + s * kSegmentItemBytes, codes_offset(warp, lane), codes);
            if (s + 1 == Config::kSegments) free_item(empty, tells);
            if (s == 0) sync_some(barrier, 128);  // all warps' weights are there
            if constexpr (Config::kFp8Math) {
                multiply_fp8_codes(codes, weights, acc, s);
            } else {
                multiply_codes(codes, weights, acc, s);
            }
        }
    } else {
        u64 const values = matrix_at(uniform(item)), p = matrix_at(uniform(weights));
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
