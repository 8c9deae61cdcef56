// K and V from an item of the ring into mma fragments. The copy has swizzled the vectors of 16 bytes: in rows of 128 bytes vector v of
// token t lies at place v ^ (t % 8), in rows of 64 at v ^ (t / 2 % 4).
#pragma once

#include "gmma/ring.cuh"

#include "common/fragments.cuh"

namespace xqajit::device {

inline u32 vector_offset(u32 token, u32 vector) {
    return token * Config::kSegment + (vector ^ (Config::kSegment == 128 ? token % 8 : token / 2 % 4)) * 16;
}

// Chunk c of the eight tokens from `row` on, of the item. Eight lanes at a time read two neighbouring tokens, from even or from odd vectors of
// 128 bytes, or all of 64: no two in a bank.
inline Vec16 load_key(u32 item, u32 row, u32 c, Lane lane) {
    u32 const vector = lane.quarter * Config::kChunksSegment + c % Config::kChunksSegment;
    u32 const segment = item + c / Config::kChunksSegment * (Config::kTile * Config::kSegment);
    return load_shared(segment + row * Config::kSegment + vector_offset(lane.eighth, vector));
}

// `row`: this warp's first of the item.
inline void load_keys(u32 item, u32 row, Lane lane, KeyFragments& keys) {
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
#pragma unroll
            for (u32 c = 0; c < Config::kChunksK; ++c)
                keys.row[tile][half][c] = load_key(item, row + tile * 16 + half * 8, c, lane);
        }
    }
}

inline void load_value(u32 address, Vec16& v) { v = load_shared(address); }
inline void load_value(u32 address, Vec8& v) { v = load_shared_half(address); }

// A token outside the share gets weight 0, but its place may hold anything, also NaN: it is read as 0. `first`: token of `row`.
inline void load_values(u32 item, u32 row, u32 first, TokenRange share, Lane lane, ValueFragments& values) {
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            u32 const token = 2 * lane.quarter + r % 2;  // among eight
#pragma unroll
            for (u32 c = 0; c < Config::kChunksV; ++c) {
                u32 const segment = item + c * (Config::kTile * Config::kSegment);
                u32 const eight = segment + (row + tile * 16 + r / 2 * 8) * Config::kSegment;
                u32 const byte = lane.eighth * Config::kValueBytes;
                load_value(eight + vector_offset(token, byte / 16) + byte % 16, values.row[tile][r][c]);
            }
        }
    }
    if (first >= share.begin && first + Config::kTileTokens <= share.end) return;
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            bool const there = inside(share, first + tile * 16 + r / 2 * 8 + 2 * lane.quarter + r % 2);
#pragma unroll
            for (u32 c = 0; c < Config::kChunksV; ++c) {
#pragma unroll
                for (u32 w = 0; w < Config::kWordsV; ++w)
                    values.row[tile][r][c].word[w] = there ? values.row[tile][r][c].word[w] : 0;
            }
        }
    }
}

}  // namespace xqajit::device
