// The two products of a tile by a group of four warps with query rows as rows: S = Q K^T and O += P V. P is in registers; the second operand
// must be in shared memory, with V's rows along its elements where it has 16 bits. 16-bit K and V, and K in fp8 math, are operands where the copy has put them.
// Other 8-bit codes go through the group's scratch: they become fp16, or, V in fp8 math, are transposed.
#pragma once

#include "gmma/tile.cuh"

namespace xqajit::device {

constexpr bool kTo16Bits = Config::k8Bit && !Config::kFp8Math;
constexpr u32 kSegment16Bytes = 64 * 128;  // of an item of 16 bits: [64 elements][64 tokens][128 bytes]
constexpr u32 kKeyScratchBytes = kTo16Bits ? Config::kValueTiles * kSegment16Bytes : 0;  // in front of V's
constexpr u32 kTransposedBytes = 64 * 64;  // of V in fp8 math: [64 elements][element][64 tokens]
static_assert(!Config::k8Bit || Config::kSegments == 1, "a row of 8-bit codes is one segment");

using TallTile = float[32];  // 64 x 64 accumulators: see wgmma.cuh

// P as the first operand: [step][rows lane/4 | + 8, twice]
struct TallWeights {
    static constexpr u32 kSteps = Config::kFp8Math ? 2 : 4;  // of 32 tokens, or of 16
    u32 a[kSteps][4];
};

// `weight`: [8 tokens][row lane/4 | + 8][2 * (lane%4) | + 1]. Of 16 tokens fp8 has four of lane's in the order that transpose_values() gives V's.
inline TallWeights pack_weights(TallTile const& weight) {
    TallWeights weights;
#pragma unroll
    for (u32 k = 0; k < TallWeights::kSteps; ++k) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            if constexpr (Config::kFp8Math) {
                float const* const pair = &weight[4 * (4 * k + i / 2 * 2) + 2 * (i % 2)];  // of 8 tokens; the next ones' are 4 on
                weights.a[k][i] = pack_e4m3(pair[0], pair[1]) | pack_e4m3(pair[4], pair[5]) << 16;
            } else {
                float const* const pair = &weight[4 * (2 * k + i / 2) + 2 * (i % 2)];
                weights.a[k][i] = pack_operands(pair[0], pair[1]);
            }
        }
    }
    return weights;
}

// Codes of an item to fp16 in `scratch`, as the copy puts what has 16 bits. Each of the group's threads has half a row. Lanes of the second
// halves take their vectors in another order, so that no two of eight lanes meet in a bank, neither reading nor writing. A token outside
// `keep` becomes zeros: its place may hold anything, also NaN.
inline void widen_item(u32 item, u32 scratch, u32 thread, u32 first, TokenRange keep) {
    constexpr u32 kVectors = Config::kSegment / 32;
    u32 const token = thread / 2, vector = thread % 2 * (kVectors * 3 / 2);  // of 16 codes; the i-th is vector ^ i
    u32 const from = item + vector_offset(token, vector);
    Vec16 codes[kVectors];
#pragma unroll
    for (u32 i = 0; i < kVectors; ++i) codes[i] = load_shared(from ^ i * 16);
    bool const kept = inside(keep, first + token);
    u32 const to = scratch + vector / 4 * kSegment16Bytes + swizzled<128>(token, vector % 4 * 2);
#pragma unroll
    for (u32 i = 0; i < kVectors; ++i) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            HalfPairs const low = widen(kept ? codes[i].word[2 * half] : 0), high = widen(kept ? codes[i].word[2 * half + 1] : 0);
            store_shared(to ^ (2 * i + half) * 16, Vec16{{low.low, low.high, high.low, high.high}});
        }
    }
}

// Codes of V to rows of 64, one an element, in `scratch`: of each 16 tokens in the order 0, 1, 8, 9, 2, 3, 10, 11 and so on. Each warp has 16
// tokens. A matrix of 8 tokens and 16 elements, taken as pairs and transposed, gives a lane two elements of two tokens.
inline void transpose_values(u32 item, u32 scratch, u32 warp, u32 lane) {
    constexpr u32 kTwoVectors = Config::kSegment / 32;
    u32 const matrix = lane / 8, row = lane % 8;
    u32 const from = item + vector_offset(warp * 16 + matrix % 2 * 8 + row, matrix / 2);
    Vec16 pairs[kTwoVectors];
#pragma unroll
    for (u32 i = 0; i < kTwoVectors; ++i) pairs[i] = load_matrices_transposed(from ^ i * 32);
    u32 const to = scratch + swizzled<64>(matrix / 2 * 16 + 2 * row + matrix % 2, warp);
#pragma unroll
    for (u32 i = 0; i < kTwoVectors; ++i) {
        u32 const(&pair)[4] = pairs[i].word;
        u32 const word[4] = {__byte_perm(pair[0], pair[1], 0x6420), __byte_perm(pair[0], pair[1], 0x7531),
                             __byte_perm(pair[2], pair[3], 0x6420), __byte_perm(pair[2], pair[3], 0x7531)};
        store_matrices(to + i * 32 * 64, word);
    }
}

// S = Q K^T begins. `keys`: the item, or scratch.
inline void start_scores(u32 query, u32 keys, TallTile& s) {
    u64 const q = matrix_at<kQueryRowBytes>(query), k = matrix_at<kQueryRowBytes>(keys);
    constexpr u32 kSteps = kQueryRowBytes / 32;  // of a segment
    begin_products();
#pragma unroll
    for (u32 i = 0; i < Config::kKeySteps; ++i) {
        u64 const a = advanced(q, i / kSteps * (Config::kMTile * kQueryRowBytes) + i % kSteps * 32);
        u64 const b = advanced(k, i / kSteps * (Config::kTile * kQueryRowBytes) + i % kSteps * 32);
        if constexpr (Config::kFp8Math) {
            multiply_fp8(s, a, b, i != 0);
        } else {
            multiply<Config::kFp16Math, false>(s, a, b, i != 0);
        }
    }
    commit_products();
}

// O += P V. `values`: the item, or scratch. start_next() is called while products are under way, and starts others, which may be under way still
// in the end. The tensor cores add products of e4m3 to what is large by then with few of their bits: a tile's are summed by themselves, and
// then in float32.
template <class StartNext>
inline void multiply_values(TallWeights const& weights, u32 values, TallTile (&acc)[Config::kValueTiles], StartNext start_next) {
    if constexpr (Config::kFp8Math) {
        u64 const v = matrix_at<64>(values);
#pragma unroll
        for (u32 t = 0; t < Config::kValueTiles; ++t) {
            TallTile of_tile;
            begin_products();
#pragma unroll
            for (u32 k = 0; k < TallWeights::kSteps; ++k)
                multiply_fp8(of_tile, weights.a[k], advanced(v, t * kTransposedBytes + k * 32), k != 0);
            commit_products();
            if (t == 0) {
                start_next();
                wait_for_products<1>();
            } else {
                wait_for_products();
            }
#pragma unroll
            for (u32 i = 0; i < 32; ++i) acc[t][i] += of_tile[i];
        }
    } else {
        u64 const v = matrix_at(values);
        begin_products();
#pragma unroll
        for (u32 k = 0; k < TallWeights::kSteps; ++k) {
#pragma unroll
            for (u32 t = 0; t < Config::kValueTiles; ++t)
                multiply<Config::kFp16Math, true>(acc[t], weights.a[k], advanced(v, t * kSegment16Bytes + k * 2048), 1);
        }
        commit_products();
        start_next();
        if (!kTo16Bits) wait_for_products<1>();
    }
}

}  // namespace xqajit::device
