// Element types: 16-byte vectors to float, floats to the output type. Own conversions, so that no toolkit header is needed.
#pragma once

#include "common/memory.cuh"

namespace xqajit::device {

constexpr u32 type_bytes(Type type) { return type == Type::kFp16 || type == Type::kBf16 ? 2 : 1; }

inline Pair half2_to_floats(u32 word) {
    Pair v;
    asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %2;\n\tcvt.f32.f16 %0, lo;\n\tcvt.f32.f16 %1, hi;\n\t}"
        : "=f"(v.x), "=f"(v.y)
        : "r"(word));
    return v;
}

// Four 8-bit codes as two pairs of fp16, in order.
struct HalfPairs {
    u32 low, high;
};

// Every e4m3 value is exact in fp16.
inline HalfPairs e4m3x4_to_half(u32 codes) {
    HalfPairs pairs;
#if __CUDA_ARCH__ >= 890
    asm("{\n\t.reg .b16 lo, hi;\n\tmov.b32 {lo, hi}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, lo;\n\tcvt.rn.f16x2.e4m3x2 %1, hi;\n\t}"
        : "=r"(pairs.low), "=r"(pairs.high)
        : "r"(codes));
#else
    // The code's exponent and mantissa, moved to fp16's place, are the value times 2^-8. NaN codes (0x7f, 0xff) become +-480.
    pairs.low = __byte_perm(codes, 0, 0x1404);
    pairs.high = __byte_perm(codes, 0, 0x3424);
    pairs.low = (pairs.low & 0x80008000u) | ((pairs.low & 0x7f007f00u) >> 1);
    pairs.high = (pairs.high & 0x80008000u) | ((pairs.high & 0x7f007f00u) >> 1);
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(pairs.low) : "r"(0x5c005c00u));  // 256
    asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(pairs.high) : "r"(0x5c005c00u));
#endif
    return pairs;
}

// One byte of `word` as a signed integer: 2^23 + (code + 128) has the code's byte as its lowest mantissa byte.
inline float int8_to_float(u32 biased_word, u32 byte) {
    return __int_as_float(static_cast<int>(__byte_perm(biased_word, 0x4b000000u, 0x7440u | byte))) - 8388736.0f;
}

template <Type kType> struct Unpacked { float value[16 / type_bytes(kType)]; };

template <Type kType> inline Unpacked<kType> unpack(Vec16 const& vec) {
    Unpacked<kType> out;
#pragma unroll
    for (u32 w = 0; w < 4; ++w) {
        u32 const word = vec.word[w];
        if constexpr (kType == Type::kBf16) {
            out.value[2 * w] = __int_as_float(static_cast<int>(word << 16));
            out.value[2 * w + 1] = __int_as_float(static_cast<int>(word & 0xffff0000u));
        } else if constexpr (kType == Type::kFp16) {
            Pair const v = half2_to_floats(word);
            out.value[2 * w] = v.x;
            out.value[2 * w + 1] = v.y;
        } else if constexpr (kType == Type::kFp8E4m3) {
            HalfPairs const pairs = e4m3x4_to_half(word);
            Pair const lo = half2_to_floats(pairs.low), hi = half2_to_floats(pairs.high);
            out.value[4 * w] = lo.x;
            out.value[4 * w + 1] = lo.y;
            out.value[4 * w + 2] = hi.x;
            out.value[4 * w + 3] = hi.y;
        } else {
            u32 const biased = word ^ 0x80808080u;
#pragma unroll
            for (u32 byte = 0; byte < 4; ++byte) out.value[4 * w + byte] = int8_to_float(biased, byte);
        }
    }
    return out;
}

// Round to nearest even, saturate at +-448; NaN stays NaN.
inline u32 float_to_e4m3(float x) {
    u32 const bits = static_cast<u32>(__float_as_int(x));
    u32 const sign = (bits >> 24) & 0x80u;
    float const magnitude = fabsf(x);
    if (!(magnitude == magnitude)) return sign | 0x7fu;
    if (magnitude >= 448.0f) return sign | 0x7eu;
    if (magnitude < 0.015625f) return sign | static_cast<u32>(__float2int_rn(magnitude * 512.0f));  // subnormal: units of 2^-9
    u32 const magnitude_bits = bits & 0x7fffffffu;
    u32 const rounded = magnitude_bits + 0x7ffffu + ((magnitude_bits >> 20) & 1u);
    u32 const code = (rounded >> 20) - (120u << 3);  // exponent bias 127 -> 7
    return sign | (code < 0x7eu ? code : 0x7eu);
}

// Two floats to fp16 or bf16, rounded to nearest even: x in the low half (PTX ISA: cvt.rn).
template <Type kType> inline u32 pack_pair(float x, float y) {
    static_assert(kType == Type::kFp16 || kType == Type::kBf16, "16-bit types only");
    u32 word;
    if constexpr (kType == Type::kBf16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y), "f"(x));
    }
    return word;
}

// Two floats to e4m3, rounded to nearest even and saturated: x in the low byte.
inline u32 pack_e4m3(float x, float y) {
#if __CUDA_ARCH__ >= 890
    u16 codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(y), "f"(x));
    return codes;
#else
    return float_to_e4m3(x) | (float_to_e4m3(y) << 8);
#endif
}

// Two fp16 to e4m3, sm_89 and later.
inline u32 half2_to_e4m3(u32 pair) {
    u16 codes;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(codes) : "r"(pair));
    return codes;
}

// Rounded to nearest even, saturated at -128 and 127; NaN becomes 0.
inline u32 float_to_int8(float x) { return static_cast<u32>(min(max(__float2int_rn(x), -128), 127)) & 0xffu; }

// Two neighbouring elements: stored at element offset `element` (even) of `base`.
template <Type kType> inline void store_pair(void* base, i64 element, float x, float y) {
    if constexpr (type_bytes(kType) == 2) {
        *reinterpret_cast<u32*>(static_cast<u16*>(base) + element) = pack_pair<kType>(x, y);
    } else {
        static_assert(kType == Type::kFp8E4m3, "the output is fp16, bf16 or fp8");
        *reinterpret_cast<u16*>(static_cast<u8*>(base) + element) = static_cast<u16>(pack_e4m3(x, y));
    }
}

}  // namespace xqajit::device
