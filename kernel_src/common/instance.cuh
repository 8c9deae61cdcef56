// The macros of one instance, read once. Past this file: if constexpr, never #if on a macro, but for the choice of a file to include.
#pragma once

#include "common/convert.cuh"

#if !defined(XQAJIT_HEAD_DIM) || !defined(XQAJIT_HEAD_DIM_V)
#error "XQAJIT_HEAD_DIM and XQAJIT_HEAD_DIM_V must be defined (16..256 in steps of 16; MLA 576 and 512)"
#endif
#if !defined(XQAJIT_GROUP_SIZE) || !defined(XQAJIT_M_TILE) || !defined(XQAJIT_BEAM_WIDTH) || !defined(XQAJIT_PAGE_SIZE)
#error \
    "XQAJIT_GROUP_SIZE (1..128), XQAJIT_M_TILE (query rows a block), XQAJIT_BEAM_WIDTH (1..8) and XQAJIT_PAGE_SIZE must be defined"
#endif
#if !defined(XQAJIT_Q_DTYPE) || !defined(XQAJIT_KV_DTYPE) || !defined(XQAJIT_OUT_DTYPE)
#error "XQAJIT_Q_DTYPE, XQAJIT_KV_DTYPE and XQAJIT_OUT_DTYPE must be defined (xqajit_dtype's values)"
#endif
#if !defined(XQAJIT_SPEC_DEC) || !defined(XQAJIT_IS_MLA) || !defined(XQAJIT_HAS_WINDOW) || !defined(XQAJIT_HAS_SOFTCAP)
#error "XQAJIT_SPEC_DEC, XQAJIT_IS_MLA, XQAJIT_HAS_WINDOW and XQAJIT_HAS_SOFTCAP must be defined"
#endif
#if !defined(XQAJIT_HAS_SINKS) || !defined(XQAJIT_HAS_LSE) || !defined(XQAJIT_NUMERIC) || !defined(XQAJIT_SKIP_SOFTMAX)
#error "XQAJIT_HAS_SINKS, XQAJIT_HAS_LSE, XQAJIT_NUMERIC and XQAJIT_SKIP_SOFTMAX must be defined"
#endif
#if !defined(XQAJIT_INPUT_KV) || !defined(XQAJIT_ROPE_STYLE) || !defined(XQAJIT_ROTARY_DIM)
#error "XQAJIT_INPUT_KV, XQAJIT_ROPE_STYLE and XQAJIT_ROTARY_DIM must be defined"
#endif

namespace xqajit::device {

constexpr u32 power_of_two_at_least(u32 value) {
    u32 power = 1;
    while (power < value) power *= 2;
    return power;
}
constexpr u32 min_of(u32 a, u32 b) { return a < b ? a : b; }
constexpr u32 max_of(u32 a, u32 b) { return a > b ? a : b; }

struct Instance {
    static constexpr u32 kHeadDim = XQAJIT_HEAD_DIM;
    static constexpr u32 kHeadDimV = XQAJIT_HEAD_DIM_V;
    static constexpr u32 kGroupSize = XQAJIT_GROUP_SIZE;
    static constexpr u32 kMTile = XQAJIT_M_TILE;  // query rows (draft token x head of the group) of one block
    static constexpr u32 kBeamWidth = XQAJIT_BEAM_WIDTH;
    static constexpr u32 kPageSize = XQAJIT_PAGE_SIZE;  // tokens; 0: contiguous
    static constexpr Type kQType = static_cast<Type>(XQAJIT_Q_DTYPE);
    static constexpr Type kKvType = static_cast<Type>(XQAJIT_KV_DTYPE);
    static constexpr Type kOutType = static_cast<Type>(XQAJIT_OUT_DTYPE);
    static constexpr SpecDec kSpecDec = static_cast<SpecDec>(XQAJIT_SPEC_DEC);
    static constexpr bool kMla = XQAJIT_IS_MLA;
    static constexpr bool kHasWindow = XQAJIT_HAS_WINDOW;
    static constexpr bool kHasSoftcap = XQAJIT_HAS_SOFTCAP;
    static constexpr bool kHasSinks = XQAJIT_HAS_SINKS;
    static constexpr bool kHasLse = XQAJIT_HAS_LSE;
    static constexpr bool kExact16 = XQAJIT_NUMERIC == 1;
    static constexpr bool kSkipSoftmax = XQAJIT_SKIP_SOFTMAX;
    static constexpr bool kInputKv = XQAJIT_INPUT_KV;  // qkv holds q and the new K and V, which the kernel stores
    static constexpr RopeStyle kRopeStyle = static_cast<RopeStyle>(XQAJIT_ROPE_STYLE);
    static constexpr u32 kRotaryDim = XQAJIT_ROTARY_DIM;  // elements of a head that are rotated

    static constexpr u32 kVecElems = 16 / type_bytes(kKvType);  // KV elements of one 16-byte vector

    static_assert(kInputKv || kRopeStyle == RopeStyle::kNone, "rotation belongs to input_kv");
    static_assert(kRopeStyle == RopeStyle::kNone ? kRotaryDim == 0
                                                 : kRotaryDim >= 16 && kRotaryDim <= kHeadDim && kRotaryDim % 16 == 0,
                  "rotary dim is a multiple of 16 up to the head dim");
    static_assert(!kInputKv || (kSpecDec == SpecDec::kNone && kBeamWidth == 1 && !kMla), "input_kv is for plain decode");
    static_assert(kHeadDim % 16 == 0 && kHeadDimV % 16 == 0, "head dims are multiples of 16");
    static_assert(kMla ? kHeadDim == 576 && kHeadDimV == 512 : kHeadDim == kHeadDimV && kHeadDim >= 16 && kHeadDim <= 256,
                  "head_dim is 16..256 and the same for V; MLA is 576 and 512");
    static_assert(kGroupSize >= 1 && kGroupSize <= 128, "group size is 1..128");
    static_assert(kBeamWidth >= 1 && kBeamWidth <= 8, "beam width is 1..8");
    static_assert(kPageSize == 0 || (kPageSize >= 8 && (kPageSize & (kPageSize - 1)) == 0),
                  "page size is 0 or a power of two from 8 on");
    static_assert(kQType == Type::kFp16 || kQType == Type::kBf16, "q is fp16 or bf16");
    static_assert(kKvType == kQType || type_bytes(kKvType) == 1, "16-bit KV has q's type");
    static_assert(kOutType == kQType || kOutType == Type::kFp8E4m3, "the output has q's type or is fp8");
    static_assert(kSpecDec == SpecDec::kNone || kBeamWidth == 1, "beam search has no draft");
    static_assert(!(kSpecDec == SpecDec::kTree && kHasWindow), "a tree mask has no window");
};

// What a warp of a family with tensor cores takes at once.
struct TensorInstance : Instance {
    static constexpr bool k8Bit = kVecElems == 16;
    static constexpr bool kFp16Math = k8Bit || kQType == Type::kFp16;  // else bf16
    static constexpr u32 kRowTiles = kMTile / 8;
    // K: the 4 lanes of a token hold a chunk with one load; an mma step takes 16 of its elements.
    static constexpr u32 kChunkK = 4 * kVecElems;
    static constexpr u32 kStepsK = kChunkK / 16;
};

}  // namespace xqajit::device
