// Rotary position embedding of q and of the new K, eight neighbouring elements of a head at a time (ROPE_STYLE, ROTARY_DIM). Pairs that
// are rotated together: NeoX (i, i + kRotaryDim / 2), GPT-J (2i, 2i + 1); (x, y) becomes (x cos - y sin, y cos + x sin). Elements from
// kRotaryDim on stay as they are, bit for bit.
#pragma once

#include "common/work.cuh"

namespace xqajit::device {

constexpr u32 kRotaryHalf = max_of(Instance::kRotaryDim / 2, 1);  // a bound, also where nothing is rotated

// [kRotaryDim / 2, 2]: cosine and sine of each pair at the position of the new token, if there is one.
inline float const* rope_angles(KernelArgs const& args, Work const& work) {
    return args.cos_sin + static_cast<i64>(work.len - 1) * Instance::kRotaryDim;
}

// Eight elements of a head as they were given, and what rotates them: loaded apart from the arithmetic, which can then come later.
struct RopeVec {
    Vec16 own;
    Vec16 partner;    // NeoX: the elements half of kRotaryDim away
    Vec16 angles[4];  // cosine, sine, cosine, ...; GPT-J has four pairs in eight elements, and uses two
};

// The first of the pairs that the elements are of.
inline u32 rope_pair(u32 element) {
    if constexpr (Instance::kRopeStyle == RopeStyle::kGptj) return element / 2;
    return element < kRotaryHalf ? element : element - kRotaryHalf;
}

// head: [kHeadDim], of q's type. element: a multiple of 8, and so is half of kRotaryDim: all eight have their partners in one vector.
inline RopeVec load_rope(u16 const* head, u32 element, float const* angles) {
    constexpr u32 kAngleVecs = Instance::kRopeStyle == RopeStyle::kGptj ? 2 : 4;
    RopeVec vec;
    vec.own = load_cached(head + element);
    if (Instance::kRopeStyle == RopeStyle::kNone || element >= Instance::kRotaryDim) return vec;
    u32 const pair = rope_pair(element);
    if constexpr (Instance::kRopeStyle == RopeStyle::kNeox)
        vec.partner = load_cached(head + (element == pair ? element + kRotaryHalf : pair));
#pragma unroll
    for (u32 i = 0; i < kAngleVecs; ++i) vec.angles[i] = load_cached(angles + 2 * pair + 4 * i);
    return vec;
}

using RopeFloats = Unpacked<Instance::kQType>;  // eight

// In float32, of elements below kRotaryDim.
inline RopeFloats rotate(RopeVec const& vec, u32 element) {
    RopeFloats const own = unpack<Instance::kQType>(vec.own);
    auto const angle = [&](u32 i) { return __int_as_float(static_cast<int>(vec.angles[i / 4].word[i % 4])); };
    RopeFloats out;
    if constexpr (Instance::kRopeStyle == RopeStyle::kNeox) {
        RopeFloats const partner = unpack<Instance::kQType>(vec.partner);
        float const sign = element < kRotaryHalf ? -1.0f : 1.0f;
#pragma unroll
        for (u32 e = 0; e < 8; ++e) out.value[e] = own.value[e] * angle(2 * e) + partner.value[e] * (sign * angle(2 * e + 1));
    } else {
#pragma unroll
        for (u32 e = 0; e < 8; e += 2) {
            float const cosine = angle(e), sine = angle(e + 1);
            out.value[e] = own.value[e] * cosine - own.value[e + 1] * sine;
            out.value[e + 1] = own.value[e + 1] * cosine + own.value[e] * sine;
        }
    }
    return out;
}

// Rounded to q's type, to nearest even.
inline Vec16 rotate_to_16bit(RopeVec const& vec, u32 element) {
    if (Instance::kRopeStyle == RopeStyle::kNone || element >= Instance::kRotaryDim) return vec.own;
    RopeFloats const rotated = rotate(vec, element);
    Vec16 out;
#pragma unroll
    for (u32 w = 0; w < 4; ++w) out.word[w] = pack_pair<Instance::kQType>(rotated.value[2 * w], rotated.value[2 * w + 1]);
    return out;
}

// Eight elements of a head of q, rotated where the launch does that.
inline Vec16 load_rotated(KernelArgs const& args, Work const& work, u16 const* head, u32 element) {
    if constexpr (Instance::kRopeStyle == RopeStyle::kNone) {
        return load_cached(head + element);
    } else {
        if (work.len <= 0) return Vec16{{0, 0, 0, 0}};  // sees nothing, and has no angles
        return rotate_to_16bit(load_rope(head, element, rope_angles(args, work)), element);
    }
}

}  // namespace xqajit::device
