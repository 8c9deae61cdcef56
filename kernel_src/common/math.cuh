// Scalar math in log2 units, and warp shuffles.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

inline float negative_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

inline float exp2_approx(float x) {  // PTX ISA: ex2.approx, 2 ulp; exp2(-inf) is 0
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

inline float log2_approx(float x) {  // PTX ISA: lg2.approx
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1 - 2 / (1 + e^2x): within 1e-6, where tanh.approx is off by 5e-4. Saturates to +-1; NaN stays NaN, which fminf would drop.
inline float tanh_accurate(float x) {
    float const saturating = 1.0f - __fdividef(2.0f, 1.0f + exp2_approx(fminf(x * (2.0f * kLog2E), 126.0f)));
    return x == x ? saturating : x;
}

// What scores are taken relative to. Where nothing is visible yet, every score is -inf, and so every weight 0.
inline float base_of(float max) { return max == negative_infinity() ? 0.0f : max; }

inline float shuffle_xor(float value, u32 lane_mask) { return __shfl_xor_sync(0xffffffffu, value, lane_mask); }
inline float shuffle(float value, u32 lane) { return __shfl_sync(0xffffffffu, value, lane); }

}  // namespace xqajit::device
