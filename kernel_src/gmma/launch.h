// Sizes that the host launches with and the kernel is compiled for: both compile this.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

// Of a kernel, what its sizes depend on.
struct GmmaKind {
    u32 head_dim, kv_bytes, m_tile;
    bool fp8_math = false;  // q and the weights are rounded to e4m3
    bool skips = false;     // skip-softmax
};

// K and V come as boxes of a tensor map: the tokens of a page, of one head, and of one segment of their rows.
struct GmmaShape {
    u32 segment_bytes;  // 64 or 128: what the tensor map's swizzle goes over
    u32 segments;       // of a row; the last one may reach past the head, where the copy fills in zeros
    u32 tile_tokens;    // of an item of the ring: K or V of so many tokens
    u32 item_bytes;
    u32 blocks_an_sm;  // at once, each with one group, or the groups that share a tile: what the registers hold
    bool wide;         // a group multiplies a whole tile by wgmma; else each warp its own tokens by mma
    bool fp8_math;     // wide, whatever the rows
    u32 row_groups;    // groups that share a tile, each with rows of its own
};

constexpr u32 kMostGmmaGroups = 2;      // of four warps, that take turns by tiles, in a block
constexpr u32 kMostNarrowRows = 16;     // query rows that each warp multiplies with its own tokens; more are a group's
constexpr u32 kMostRowsOfGroup = 32;    // of a group that multiplies whole tiles: more accumulators leave too few warps an SM
constexpr u32 kGmmaAlignment = 1024;    // of the rings: the swizzle's pattern repeats so
constexpr u32 kGmmaFlight = 96 * 1024;  // bytes of an SM's rings: more on their way at once measured slower
constexpr u32 kMostGmmaItems = 12;      // of an SM's rings, likewise
constexpr u32 kLeastGmmaItems = 2;      // of one ring: K and V

// Skip-softmax: tiles that a group's K is ahead of its V, and places for what is told of a tile.
constexpr u32 gmma_ahead(u32 m_tile) { return m_tile > 8 ? 4 : 6; }
constexpr u32 kGmmaVerdicts = 8;  // a power of two, and more than tiles ahead

// Query rows of a narrow block, at most: accumulators of a large head leave no room for more.
constexpr u32 gmma_narrow_rows(u32 head_dim) { return head_dim > 128 ? 8 : kMostNarrowRows; }

// Blocks of all groups that the kernel keeps its registers few enough for, an SM.
constexpr u32 gmma_large_blocks(GmmaKind kind) {
    if (kind.skips) return 1;
    if (kind.fp8_math && kind.m_tile <= kMostNarrowRows) return 2;
    return kind.head_dim <= 128 && (kind.m_tile == 8 || kind.m_tile == kMostRowsOfGroup) ? 2 : 1;
}

constexpr GmmaShape gmma_shape(GmmaKind kind) {
    u32 const row_bytes = kind.head_dim * kind.kv_bytes;
    u32 const segment = row_bytes <= 64 ? 64 : 128;
    u32 const segments = (row_bytes + segment - 1) / segment;
    u32 const item = 64 * segment * segments;
    bool const wide = kind.fp8_math || kind.m_tile > kMostNarrowRows;
    u32 const row_groups = kind.m_tile > kMostRowsOfGroup ? kind.m_tile / kMostRowsOfGroup : 1;
    kind.skips = false;  // as many small blocks are planned
    bool const four = gmma_large_blocks(kind) > 1 && (item < 16384 || kind.m_tile == kMostRowsOfGroup);
    return {segment, segments, 64, item, four ? 4u : 2u, wide, kind.fp8_math, row_groups};
}

// Bytes that a wide block has in front of its rings, 0 of a narrow one.
// q: rows of 128 bytes for each 64 elements, or for each 64 codes of K's segments; in fp8 math segments as K's.
constexpr u32 gmma_query_bytes(GmmaShape shape, u32 kv_bytes, u32 m_tile) {
    if (!shape.wide) return 0;
    u32 const row = shape.segments * shape.segment_bytes;
    return m_tile * (shape.fp8_math ? row : row / kv_bytes * 2);
}
// A group's weights: of 64 tokens, in fp16 or bf16 a row of 128 bytes a token, in fp8 math a row of 64 a query row.
constexpr u32 gmma_weight_bytes(GmmaShape shape, u32 m_tile) {
    if (!shape.wide) return 0;
    return shape.fp8_math ? ((m_tile / shape.row_groups) * 64 + kGmmaAlignment - 1) / kGmmaAlignment * kGmmaAlignment : 64 * 128;
}
constexpr u32 gmma_operand_bytes(GmmaShape shape, u32 kv_bytes, u32 m_tile, u32 groups) {
    u32 const query = gmma_query_bytes(shape, kv_bytes, m_tile);
    return (query + kGmmaAlignment - 1) / kGmmaAlignment * kGmmaAlignment +
           groups * shape.row_groups * gmma_weight_bytes(shape, m_tile);
}

// One more warp copies.
constexpr u32 gmma_threads(u32 groups, u32 row_groups = 1) { return 128 * groups * row_groups + 32; }

// Items of each group's ring where an SM has so many such blocks at once.
constexpr u32 gmma_ring_items(GmmaShape shape, u32 groups, u32 blocks) {
    u32 const fitting = kGmmaFlight / shape.item_bytes;
    u32 const items = (fitting < kMostGmmaItems ? fitting : kMostGmmaItems) / (groups * blocks);
    return items < kLeastGmmaItems ? kLeastGmmaItems : items;
}

// Bytes of static shared memory, at most. A row's: q in whole segments and its factor, or both groups' statistics; and the cluster's. Then
// the barriers, the work and padding. What is kept of tiles that may be skipped: the four warps' largest scores, two barriers and a word
// each, and the scores of those ahead.
constexpr u32 gmma_static_smem(GmmaKind kind) {
    constexpr u32 kClusterStats = 8, kFactor = 4, kGroupStats = 32, kRest = 1024;
    bool const wide = gmma_shape(kind).wide;
    u32 const row = wide ? kMostGmmaGroups * kGroupStats : (kind.head_dim + 127) / 128 * 256 + kFactor;
    u32 const verdicts = kGmmaVerdicts * (kind.m_tile * 16 + 20) + gmma_ahead(kind.m_tile) * 64 * kind.m_tile * 4;
    return kind.m_tile * (row + kClusterStats) + kRest + (kind.skips ? kMostGmmaGroups * verdicts : 0);
}

// Bytes of dynamic shared memory: operands and rings, and in their place at the end the partial result of each warp, or of each group.
constexpr u32 gmma_dynamic_smem(GmmaShape shape, u32 head_dim, u32 kv_bytes, u32 m_tile, u32 groups, u32 items) {
    u32 const rings = gmma_operand_bytes(shape, kv_bytes, m_tile, groups) + groups * items * shape.item_bytes;
    u32 const partials = groups * (shape.wide ? 1 : 4) * partial_floats(m_tile, head_dim) * 4;
    return kGmmaAlignment + (rings > partials ? rings : partials);
}

}  // namespace xqajit::device
