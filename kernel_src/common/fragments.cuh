// mma.sync operands. Both products have the tokens (or V's elements) as rows and the query rows as columns, so that a group of 8
// heads fills an instruction: S^T = K Q^T, O^T = V^T P^T. For the families that have a Config with tiles of mma, which they include first.
#pragma once

#include "common/work.cuh"

namespace xqajit::device {

// This lane's place: K row lane/4 of each eight tokens, vector lane%4; V tokens 2*(lane%4) and the next, vector lane/4.
struct Lane {
    u32 eighth;   // lane / 4
    u32 quarter;  // lane % 4
};

inline bool inside(TokenRange range, u32 t) { return t >= range.begin && t < range.end; }

struct KeyFragments {
    Vec16 row[Config::kTokenTiles][2][Config::kChunksK];  // [16 tokens][row lane/4 | + 8][chunk]; zeros past the head
};

template <u32 kWords> struct VecOf { using Type = Vec16; };
template <> struct VecOf<2> { using Type = Vec8; };
using VecV = VecOf<Config::kWordsV>::Type;

struct ValueFragments {
    VecV row[Config::kTokenTiles][4][Config::kChunksV];  // [16 tokens][token 2*(lane%4) + {0, 1, 8, 9}][chunk]; zeros past the head
};

struct Tile {  // 16 x 8 accumulators: this lane has rows lane/4 and lane/4 + 8, columns 2*(lane%4) and the next
    float value[4];
};

// D += A B (PTX ISA: mma.m16n8k16). a: 16 x 16 by rows; b: 16 x 8 by columns.
inline void mma(Tile& d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    if constexpr (Config::kFp16Math) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d.value[0]), "+f"(d.value[1]), "+f"(d.value[2]), "+f"(d.value[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(d.value[0]), "+f"(d.value[1]), "+f"(d.value[2]), "+f"(d.value[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
}

// Transposes an 8 x 8 matrix of 16-bit elements held by the warp (PTX ISA: movmatrix).
inline u32 transpose(u32 pair) {
    u32 out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}

inline u32 pack_operands(float low, float high) { return pack_pair < Config::kFp16Math ? Type::kFp16 : Type::kBf16 > (low, high); }

// Exact for e4m3 and int8 alike.
inline HalfPairs widen(u32 codes) {
    if constexpr (Config::kKvType == Type::kFp8E4m3) {
        return e4m3x4_to_half(codes);
    } else {
        // The biased code is the lowest mantissa byte of 1024 + code + 128.
        u32 const biased = codes ^ 0x80808080u;
        HalfPairs pairs{__byte_perm(biased, 0x64646464u, 0x4140), __byte_perm(biased, 0x64646464u, 0x4342)};
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pairs.low) : "r"(0x64806480u));  // 1152
        asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(pairs.high) : "r"(0x64806480u));
        return pairs;
    }
}

}  // namespace xqajit::device
