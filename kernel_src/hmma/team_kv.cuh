// K and V of a team's steps on their way through shared memory: a ring of tiles of kTileTokens tokens, copied by all lanes of the team.
//
// One tile (D 128, bf16: 10 + 8.5 KB):
//   keys    [kTileTokens][kKeyStride bytes]    rows 64 bytes apart in the banks: four lanes read a row, eight an access
//   values  [kTileTokens][kValueStride bytes]  rows 16 bytes apart in the banks: a lane reads a row, eight an access
#pragma once

#include "hmma/kv.cuh"

namespace xqajit::device {

constexpr u32 kTeamLanes = Config::kTeamWarps * 32;
constexpr u32 kRowBytes = Config::kHeadDim * type_bytes(Config::kKvType);
constexpr u32 kKeyStride = team_key_stride(kRowBytes), kValueStride = team_value_stride(kRowBytes);
constexpr u32 kValuesAt = Config::kTileTokens * kKeyStride;
constexpr u32 kTileBytes = team_tile_bytes(kRowBytes, Config::kTileTokens);

// A lane copies one vector of 16 bytes of a row in each pass; a row is given a power of two of lanes, of which some may idle.
constexpr u32 kRowLanes = power_of_two_at_least(Config::kChunksK * 4);
constexpr u32 kPassTokens = kTeamLanes / kRowLanes;
static_assert(kPassTokens >= 1 && Config::kTileTokens % kPassTokens == 0, "passes are whole");

// Rows of a step whose addresses a lane gets by adding up: of one page, or of one pass.
constexpr u32 kPageTokens = Config::kPageSize == 0 ? Config::kTileTokens : min_of(Config::kPageSize, Config::kTileTokens);
constexpr u32 kRunTokens = max_of(kPassTokens, kPageTokens);

// Page indices of a lane's rows of a step: one a run.
struct StepPages {
    i32 k[Config::kTileTokens / kRunTokens];
    i32 v[Config::kTileTokens / kRunTokens];
};

// A lane's place in the passes.
struct Copier {
    u32 vector;
    u32 token;  // of the step, first pass
};

inline Copier copier() {
    u32 const lane = threadIdx.x % kTeamLanes;
    return {lane % kRowLanes, lane / kRowLanes};
}

// Of the step from token `first` on.
inline StepPages load_step_pages(KernelArgs const& args, Work const& work, u32 first) {
    StepPages pages;
#pragma unroll
    for (u32 i = 0; i < Config::kTileTokens / kRunTokens; ++i) {
        u32 const t = nearest(work.share, first + i * kRunTokens + copier().token);
        pages.k[i] = page_of(args, work, args.k.page_table, t);
        pages.v[i] = page_of(args, work, args.v.page_table, t);  // often the same, but a copy would wait for it
    }
    return pages;
}

// Rows of a step that lies wholly in the share are constant strides apart; else the nearest token of the share stands in for one
// outside.
template <bool kWhole>
inline void copy_rows(KernelArgs const& args, Work const& work, StepPages const& pages, u32 first, u32 tile) {
    Copier const own = copier();
    bool const valid = own.vector * 16 < kRowBytes;
    u32 const offset = valid ? own.vector * 16 : 0;
    u8 const* const keys = args.k.base + work.kv_head * args.k.stride_head + offset;
    u8 const* const values = args.v.base + work.kv_head * args.v.stride_head + offset;
    u32 const key_place = tile + own.token * kKeyStride + own.vector * 16;
    u32 const value_place = tile + kValuesAt + own.token * kValueStride + own.vector * 16;
    u8 const *key = keys, *value = values;
#pragma unroll
    for (u32 plus = 0; plus < Config::kTileTokens; plus += kPassTokens) {
        if (!kWhole || plus % kRunTokens == 0) {
            u32 const t = kWhole ? first + own.token + plus : nearest(work.share, first + own.token + plus);
            u32 const slot = Config::kPageSize == 0 ? t : t % kTokensPerPage;
            key = keys + pages.k[plus / kRunTokens] * args.k.stride_page + slot * args.k.stride_token;
            value = values + pages.v[plus / kRunTokens] * args.v.stride_page + slot * args.v.stride_token;
        } else {
            key += kPassTokens * args.k.stride_token;
            value += kPassTokens * args.v.stride_token;
        }
        copy_async(key_place + plus * kKeyStride, key, valid);
        if (valid) copy_async(value_place + plus * kValueStride, value, true);
    }
}

// The step from `first` on to the tile at shared address `tile`. K's vectors past the head are zeros, V's are left as they were.
inline void copy_step(KernelArgs const& args, Work const& work, StepPages const& pages, u32 first, u32 tile) {
    if (copier().vector >= Config::kChunksK * 4) return;
    if (is_whole(work, first)) {
        copy_rows<kHasWholeSteps>(args, work, pages, first, tile);
    } else {
        copy_rows<false>(args, work, pages, first, tile);
    }
}

// The lane's vector of chunk c of eight tokens, this lane's being lane/4: operands of two mma steps, or of four with 8-bit codes.
inline Vec16 key_fragment(u32 keys, Lane lane, u32 eight, u32 c) {
    return load_shared(keys + lane.eighth * kKeyStride + lane.quarter * 16 + eight * kKeyStride + c * 64);
}

// Second operands of 16 tokens for two vectors of a row, [8 columns][two words]. 16-bit V: two tiles, whose columns are consecutive
// elements. 8-bit V: four, and column n of tile j is element 16 * (j / 2) + 2 * n + j % 2.
constexpr u32 kTilesOfTwo = Config::k8Bit ? 4 : 2;
struct ValueOperands {
    u32 b[kTilesOfTwo][2];
};

inline ValueOperands value_operands(u32 values, u32 vector) {
    ValueOperands out;
    u32 const lane = threadIdx.x % 32;
    Vec16 const words = load_matrices_transposed(values + lane % 16 * kValueStride + lane / 16 * 16 + vector * 16);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        if constexpr (Config::k8Bit) {  // two codes of one token and two of the next
            HalfPairs const wide = widen(__byte_perm(words.word[i], 0, 0x3120));
            out.b[i / 2 * 2][i % 2] = wide.low, out.b[i / 2 * 2 + 1][i % 2] = wide.high;
        } else {
            out.b[i / 2][i % 2] = words.word[i];
        }
    }
    return out;
}

}  // namespace xqajit::device
