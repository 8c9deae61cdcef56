// Sizes that the host launches with and the kernel is compiled for: both compile this.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

struct HmmaShape {
    u32 value_bytes;  // of V that a lane loads at once; one warp's rows only
    u32 tile_tokens;  // of a step: 16 or 32
    u32 warp_rows;    // query rows of a warp: all of a block's, or 16 or 32 where warps take a step together as a team
    u32 team_warps;
    u32 stages;       // steps in a team's ring
    u32 max_threads;  // of an SM at once, and so of a block
    u32 team_smem;    // bytes of dynamic shared memory for each team of a block
};

constexpr u32 kMostWarpRows = 16;       // more need a team
constexpr u32 kTeamRing = 36 * 1024;    // bytes of a team's ring, where two steps fit into it
constexpr u32 kTeamsSmem = 184 * 1024;  // of all rings of an SM that has as much

// Bytes between the rows of K and V in a team's shared memory: see team_kv.cuh.
constexpr u32 team_key_stride(u32 row_bytes) { return (row_bytes + 63) / 64 * 64 + ((row_bytes + 63) / 64 % 2 == 0 ? 64 : 0); }
constexpr u32 team_value_stride(u32 row_bytes) { return row_bytes + (row_bytes / 16 % 2 == 0 ? 16 : 0); }
constexpr u32 team_tile_bytes(u32 row_bytes, u32 tokens) {
    return tokens * (team_key_stride(row_bytes) + team_value_stride(row_bytes)) + 16;  // a last row is read in pairs of vectors
}

// More than 16 rows, from registers and shared memory. Two warps, or four for 64 rows of a large head, share K and V: the accumulators
// of 32 rows x 128 elements, or of 16 x 256, take half of a warp's registers. The partial result takes the ring's place at the end.
constexpr HmmaShape hmma_team_shape(u32 head_dim, u32 kv_bytes, u32 m_tile) {
    u32 const warp_rows = m_tile > 32 && head_dim <= 128 ? 32 : 16;
    // Eight warps have the registers; rows of 16 leave enough for twelve, which 8-bit codes keep busy with conversions.
    u32 const most_warps = warp_rows == 16 && kv_bytes == 1 && head_dim <= 128 ? 12 : 8;
    u32 const team_warps = m_tile / warp_rows, teams = most_warps / team_warps;
    u32 const row_bytes = head_dim * kv_bytes;
    // Steps of half the tokens rather than half the teams.
    u32 const tile_tokens = 2 * teams * team_tile_bytes(row_bytes, 32) <= kTeamsSmem ? 32 : 16;
    u32 const tile = team_tile_bytes(row_bytes, tile_tokens);
    u32 const partial = partial_floats(m_tile, head_dim) * 4;
    u32 const ring = kTeamRing < kTeamsSmem / teams ? kTeamRing : kTeamsSmem / teams;
    u32 const room = partial > ring ? partial : ring;
    u32 const stages = room / tile < 2 ? 2 : room / tile > 6 ? 6 : room / tile;
    u32 const smem = stages * tile > partial ? stages * tile : partial;
    u32 const fitting = kTeamsSmem / smem;
    return {16, tile_tokens, warp_rows, team_warps, stages, (teams < fitting ? teams : fitting) * team_warps * 32, smem};
}

// m_tile: query rows of a block, 8, 16, 32 or 64. Those of single warps follow from the registers of one lane, in words.
constexpr HmmaShape hmma_shape(u32 head_dim, u32 kv_bytes, u32 m_tile) {
    if (m_tile > kMostWarpRows) return hmma_team_shape(head_dim, kv_bytes, m_tile);
    u32 const row_bytes = head_dim * kv_bytes;
    // 16, or 8 where 16 would leave half of the 8 lanes of a row without any.
    u32 const value_bytes = row_bytes % 128 != 0 && row_bytes % 128 <= 64 ? 8 : 16;
    u32 const keys = 4 * ((row_bytes + 63) / 64) * 2;  // of 16 tokens: 4 lanes a row, 2 rows a lane
    u32 const values =
        value_bytes / 4 * ((row_bytes + 8 * value_bytes - 1) / (8 * value_bytes)) * 4;  // 8 lanes a row, 4 rows a lane
    u32 const row_tiles = m_tile / 8;
    u32 const step16 = keys + values + 4 * row_tiles;  // and the scores
    u32 const tile_tokens = 2 * step16 <= 80 ? 32 : 16;
    u32 const accumulators = 2 * row_tiles * values / kv_bytes;
    u32 const registers = step16 * tile_tokens / 16 + accumulators + 8 * row_tiles;
    return {value_bytes, tile_tokens, m_tile, 1, 0, registers <= 112 ? 384u : 256u, partial_floats(m_tile, head_dim) * 4};
}

// Bytes of static shared memory, at most: q in whole chunks of a key row, a factor and the cluster's statistics a row, and what the
// block's threads tell one another.
constexpr u32 hmma_static_smem(u32 head_dim, u32 kv_bytes, u32 m_tile) {
    u32 const chunk = 64 / kv_bytes;
    return m_tile * ((head_dim + chunk - 1) / chunk * chunk * 2 + 4 + 8) + 256;
}

// Bytes of shared memory of a block with so many teams, or warps.
constexpr u32 hmma_block_smem(u32 head_dim, u32 kv_bytes, u32 m_tile, u32 teams) {
    return hmma_static_smem(head_dim, kv_bytes, m_tile) + teams * hmma_shape(head_dim, kv_bytes, m_tile).team_smem;
}

}  // namespace xqajit::device
