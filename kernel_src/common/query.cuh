// q as the second operand of S^T = K Q^T: in shared memory, in the order in which the lanes take it.
#pragma once

#include "common/fragments.cuh"
#include "common/merge.cuh"
#include "common/rope.cuh"

namespace xqajit::device {

struct Query {
    Vec16 b[Config::kRowTiles][Config::kChunksK][Config::kStepsK / 2][32];  // [..][two mma steps][lane]: b0, b1, b0, b1
    float factor[Config::kMTile];                                           // see score_factor()
};

// The power of two that puts a row's largest value near 2^kExponent. A bf16 q meets fp16 keys when KV has 8 bits: near 2^14 only what is
// 2^-38 of the largest or less can be lost.
template <i32 kExponent> inline float scale_to(float largest) {
    i32 const exponent = (__float_as_int(largest) >> 23) & 0xff;
    return largest == 0.0f ? 1.0f : __int_as_float(min(max(127 + kExponent + 127 - exponent, 1), 254) << 23);
}

// This lane's part of row lane/4 of a row tile: the elements that meet its part of a key.
struct QueryRows {
    Vec16 part[Config::kChunksK][Config::kStepsK / 2];
};

// Row tile `n`, by one warp. Rows past nb_rows are zeros.
inline QueryRows load_query(KernelArgs const& args, Work const& work, u32 n, Lane lane) {
    u32 const m = n * 8 + lane.eighth;
    u32 const row = work.first_row + m;
    i64 const token = (work.q_row + row / Config::kGroupSize) * Config::kBeamWidth + work.beam;
    i64 const head = work.kv_head * Config::kGroupSize + row % Config::kGroupSize;
    u16 const* const base = static_cast<u16 const*>(args.q) + token * args.q_stride_row + head * args.q_stride_head;
    QueryRows rows;
#pragma unroll
    for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
        for (u32 two = 0; two < Config::kStepsK / 2; ++two) {
            u32 const element = Config::key_element(c, lane.quarter) + two * 8;
            rows.part[c][two] = Vec16{{0, 0, 0, 0}};
            if (m < work.nb_rows && element < Config::kHeadDim) rows.part[c][two] = load_rotated(args, work, base, element);
        }
    }
    return rows;
}

// Of eight elements of q.
template <Type kType> inline float largest_of(Vec16 vec) {
    Unpacked<kType> const values = unpack<kType>(vec);
    float largest = 0.0f;
#pragma unroll
    for (u32 e = 0; e < 8; ++e) largest = fmaxf(largest, fabsf(values.value[e]));
    return largest;
}

// Of a bf16 q.
inline Vec16 to_fp16(Vec16 vec, float scale) {
    Unpacked<Type::kBf16> const values = unpack<Type::kBf16>(vec);
#pragma unroll
    for (u32 w = 0; w < 4; ++w) vec.word[w] = pack_operands(values.value[2 * w] * scale, values.value[2 * w + 1] * scale);
    return vec;
}

inline Vec16 negated(Vec16 vec) {
#pragma unroll
    for (u32 w = 0; w < 4; ++w) vec.word[w] ^= 0x80008000u;
    return vec;
}

// From the scores of a row of q times row_scale to log2 units, or, with a soft cap, to units of the cap. Where it is negative, which 8-bit
// KV's k_scale allows, q takes the sign: see positive().
inline float score_factor(KernelArgs const& args, float row_scale) {
    float const k_scale = args.k_scale_ptr != nullptr ? *args.k_scale_ptr : args.k_scale;
    return args.qk_scale * k_scale * (Config::kHasSoftcap ? 1.0f / args.softcap : kLog2E) / row_scale;
}

// The factor that is used: positive, so that the largest score stays the largest and a hidden one's -inf stays that.
inline float positive(float factor) { return factor == 0.0f ? 1e-37f : fabsf(factor); }

// Makes the rows operands of the arithmetic's type; returns the factor of their scores.
inline float to_operands(KernelArgs const& args, QueryRows& rows) {
    float row_scale = 1.0f;
    if constexpr (Config::k8Bit && Config::kQType == Type::kBf16) {
        float largest = 0.0f;
#pragma unroll
        for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
            for (u32 two = 0; two < Config::kStepsK / 2; ++two)
                largest = fmaxf(largest, largest_of<Type::kBf16>(rows.part[c][two]));
        }
        largest = fmaxf(largest, shuffle_xor(largest, 1));
        largest = fmaxf(largest, shuffle_xor(largest, 2));
        row_scale = scale_to<14>(largest);
#pragma unroll
        for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
            for (u32 two = 0; two < Config::kStepsK / 2; ++two) rows.part[c][two] = to_fp16(rows.part[c][two], row_scale);
        }
    }
    float const factor = score_factor(args, row_scale);
    if (Config::k8Bit && factor < 0.0f) {
#pragma unroll
        for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
            for (u32 two = 0; two < Config::kStepsK / 2; ++two) rows.part[c][two] = negated(rows.part[c][two]);
        }
    }
    return positive(factor);
}

// The largest score so far need not be the exact one, as long as no weight grows out of hand: it follows a larger score only when it
// is this far behind (log2 units). So what was summed is seldom multiplied again.
constexpr float kMaxLag = 8.0f;

// Scores are raw until soften() multiplies them; with a soft cap they are in log2 units before, as it bends them.
inline float softened_factor(float factor) { return Config::kHasSoftcap ? 1.0f : factor; }

inline void store_query(KernelArgs const& args, QueryRows rows, u32 n, Lane lane, Query& query) {
    float const factor = to_operands(args, rows);
#pragma unroll
    for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
        for (u32 two = 0; two < Config::kStepsK / 2; ++two) query.b[n][c][two][lane.eighth * 4 + lane.quarter] = rows.part[c][two];
    }
    if (lane.quarter == 0) query.factor[n * 8 + lane.eighth] = factor;
}

}  // namespace xqajit::device
