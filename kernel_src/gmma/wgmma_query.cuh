// q as an operand of wgmma, swizzled as the copy does K.
//   16-bit arithmetic: [64 elements][kMTile rows][128 bytes]
//   fp8 arithmetic:    [segment][kMTile rows][kSegment bytes], as K
#pragma once

#include "gmma/wgmma.cuh"

#include "common/query.cuh"

namespace xqajit::device {

constexpr u32 kQueryRowBytes = Config::kFp8Math ? Config::kSegment : 128;
constexpr u32 kQueryLanes = power_of_two_at_least(Config::kQueryVectors);  // of a row, each with a vector of eight elements
constexpr u32 kQueryRowsAtOnce = 32 / kQueryLanes;                         // of a warp
static_assert(kQueryLanes <= 32, "a warp has a row's vectors");

// 8-bit K that becomes fp16 on its way to registers has a step's elements where multiply_keys() of wide_kv.cuh puts them: lane%4 has words of four codes, of which the first two are
// elements 2 * (lane%4) and the next of the step, the others those plus 8.
inline void store_for_codes(u32 query, u32 m, u32 v, Vec16 q) {
    constexpr u32 kVectors = Config::kSegment / 16;  // of codes, of a segment
    u32 const segment = v / 2 / kVectors, vector = v / 2 % kVectors;
    u32 const quarter = vector / Config::kChunksSegment;
    u32 const chunk = segment * Config::kChunksSegment + vector % Config::kChunksSegment;
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
        u32 const step = chunk * Config::kStepsK + v % 2 * 2 + w / 2;
        store_shared(query + step / 4 * (Config::kMTile * 128) + swizzled<128>(m, step % 4 * 2 + w % 2) + 4 * quarter, q.word[w]);
    }
}

// Eight elements, times `scale`, as codes.
inline Vec8 to_e4m3(Vec16 q, float scale) {
    Unpacked<Config::kQType> const values = unpack<Config::kQType>(q);
    Vec8 codes;
#pragma unroll
    for (u32 w = 0; w < 2; ++w) {
        float const* const four = &values.value[4 * w];
        codes.word[w] = pack_e4m3(four[0] * scale, four[1] * scale) | pack_e4m3(four[2] * scale, four[3] * scale) << 16;
    }
    return codes;
}

// 16 bits of a row times `scale`, which is 1 but for a bf16 q with 8-bit KV.
inline Vec16 to_product_type(Vec16 q, float scale) {
    if constexpr (Config::k8Bit && Config::kQType == Type::kBf16) return to_fp16(q, scale);
    return q;
}

// Vector `v` of row m; zeros past the head and nb_rows.
inline Vec16 load_query_vector(KernelArgs const& args, Work const& work, u32 m, u32 v) {
    if (m >= work.nb_rows || v * 8 >= Config::kHeadDim) return Vec16{{0, 0, 0, 0}};
    u32 const row = work.first_row + m;
    i64 const token = work.q_row + row / Config::kGroupSize;
    i64 const head = work.kv_head * Config::kGroupSize + row % Config::kGroupSize;
    u16 const* const base = static_cast<u16 const*>(args.q) + token * args.q_stride_row + head * args.q_stride_head;
    return load_rotated(args, work, base, v * 8);
}

// Stores it, by the kQueryLanes neighbouring lanes of the row. `factor`: of an unscaled row. Returns the row's, a multiple by a power of two.
inline float store_query_vector(Vec16 q, float factor, u32 query, u32 m, u32 v) {
    float row_scale = 1.0f;
    if constexpr (Config::kFp8Math || (Config::k8Bit && Config::kQType == Type::kBf16)) {
        float largest = largest_of<Config::kQType>(q);
#pragma unroll
        for (u32 mask = 1; mask < kQueryLanes; mask *= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
        constexpr int kBits = Config::kFp8Math ? 7 : 14;  // e4m3 goes to 448
        row_scale = scale_to<kBits>(largest);
    }
    if (Config::k8Bit && factor < 0.0f) q = negated(q);
    if (m < Config::kMTile && v < Config::kQueryVectors) {
        if constexpr (Config::kFp8Math) {
            constexpr u32 kVectors = Config::kSegment / 8;
            u32 const place = swizzled<Config::kSegment>(m, v % kVectors / 2) + v % 2 * 8;
            store_shared(query + v / kVectors * (Config::kMTile * Config::kSegment) + place, to_e4m3(q, row_scale));
        } else if constexpr (Config::k8Bit && Config::kShape.form == GmmaForm::kWide) {
            store_for_codes(query, m, v, to_product_type(q, row_scale));
        } else {
            store_shared(query + v / 8 * (Config::kMTile * 128) + swizzled<128>(m, v % 8), to_product_type(q, row_scale));
        }
    }
    return positive(factor / row_scale);
}

// All of q, by all the block's warps that compute; use(m, factor) once a row. Some rows are on their way at once.
template <class Use>
inline void store_query(KernelArgs const& args, Work const& work, u32 query, u32 nb_warps, u32 warp, u32 lane, Use use) {
    constexpr u32 kAtOnce = min_of(8, ceil_div(Config::kMTile, 4 * kQueryRowsAtOnce));
    u32 const v = lane % kQueryLanes, step = nb_warps * kQueryRowsAtOnce;
    float const factor = score_factor(args, 1.0f);
    for (u32 row = warp * kQueryRowsAtOnce + lane / kQueryLanes; row < Config::kMTile + lane / kQueryLanes; row += kAtOnce * step) {
        Vec16 q[kAtOnce];
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) q[i] = load_query_vector(args, work, row + i * step, v);
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) {
            u32 const m = row + i * step;
            float const of_row = store_query_vector(q[i], factor, query, m, v);
            if (v == 0 && m < Config::kMTile) use(m, of_row);
        }
    }
}

}  // namespace xqajit::device
