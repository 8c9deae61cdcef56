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

// Who multiplies what. Narrow: each warp its own tokens by mma. The others are a group's products of a whole tile by wgmma: wide has the tokens, and
// V's elements, as rows and the query rows as columns, tall the query rows as rows.
enum class GmmaForm : u32 { kNarrow, kWide, kTall };

// K and V come as boxes of a tensor map: the tokens of a page, of one head, and of one segment of their rows.
struct GmmaShape {
    u32 segment_bytes;  // 64 or 128: what the tensor map's swizzle goes over
    u32 segments;       // of a row; the last one may reach past the head, where the copy fills in zeros
    u32 tile_tokens;    // of an item of the ring: K or V of so many tokens
    u32 item_bytes;
    u32 blocks_an_sm;  // at once, each with one group: what the registers hold
    GmmaForm form;
    bool fp8_math;  // never narrow, whatever the rows
};

constexpr u32 kMostGmmaGroups = 2;      // of four warps, that take turns by tiles, in a block
constexpr u32 kMostNarrowRows = 16;     // query rows of a narrow block
constexpr u32 kMostWideRows = 32;       // of a wide one; more are a tall one's
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
    return kind.head_dim <= 128 && (kind.m_tile == 8 || kind.m_tile == kMostWideRows) ? 2 : 1;
}

constexpr GmmaShape gmma_shape(GmmaKind kind) {
    u32 const row_bytes = kind.head_dim * kind.kv_bytes;
    u32 const segment = row_bytes <= 64 ? 64 : 128;
    u32 const segments = (row_bytes + segment - 1) / segment;
    u32 const item = 64 * segment * segments;
    GmmaForm const form = kind.m_tile > kMostWideRows                      ? GmmaForm::kTall
                          : kind.fp8_math || kind.m_tile > kMostNarrowRows ? GmmaForm::kWide
                                                                           : GmmaForm::kNarrow;
    kind.skips = false;  // as many small blocks are planned
    bool const four = gmma_large_blocks(kind) > 1 && (item < 16384 || kind.m_tile == kMostWideRows);
    return {segment, segments, 64, item, four ? 4u : 2u, form, kind.fp8_math};
}

constexpr u32 gmma_aligned(u32 bytes) { return (bytes + kGmmaAlignment - 1) / kGmmaAlignment * kGmmaAlignment; }

// Bytes of q that all but narrow blocks have in front of their rings: rows of 128 bytes for each 64 elements of K's segments; in fp8 math
// segments as K's.
constexpr u32 gmma_query_bytes(GmmaShape shape, u32 kv_bytes, u32 m_tile) {
    if (shape.form == GmmaForm::kNarrow) return 0;
    u32 const row = shape.segments * shape.segment_bytes;
    return gmma_aligned(m_tile * (shape.fp8_math ? row : row / kv_bytes * 2));
}
// Bytes that a group has there for what its warps make for one another.
// Wide: weights of 64 tokens, in fp16 or bf16 a row of 128 bytes a token, in fp8 math a row of 64 a query row.
// Tall: K and V of 64 tokens that became 16 bits, or, in fp8 math, V of two tiles transposed.
constexpr u32 gmma_scratch_bytes(GmmaShape shape, u32 kv_bytes, u32 m_tile) {
    if (shape.form == GmmaForm::kNarrow) return 0;
    if (shape.form == GmmaForm::kWide) return shape.fp8_math ? gmma_aligned(m_tile * 64) : 64 * 128;
    return kv_bytes == 2 ? 0 : (shape.fp8_math ? 2 : 4) * shape.item_bytes;
}
constexpr u32 gmma_operand_bytes(GmmaShape shape, u32 kv_bytes, u32 m_tile, u32 groups) {
    return gmma_query_bytes(shape, kv_bytes, m_tile) + groups * gmma_scratch_bytes(shape, kv_bytes, m_tile);
}

// One more warp copies.
constexpr u32 gmma_threads(u32 groups) { return 128 * groups + 32; }

// Items of each group's ring where an SM has so many such blocks at once.
constexpr u32 gmma_ring_items(GmmaShape shape, u32 groups, u32 blocks) {
    u32 const fitting = kGmmaFlight / shape.item_bytes;
    u32 const items = (fitting < kMostGmmaItems ? fitting : kMostGmmaItems) / (groups * blocks);
    return items < kLeastGmmaItems ? kLeastGmmaItems : items;
}

// Bytes of static shared memory, at most. A row's: a narrow block's q in whole segments, and its factor, or a wide block's statistics of both groups; and the
// cluster's. Then
// the barriers, the work and padding. What is kept of tiles that may be skipped: the four warps' largest scores, two barriers and a word
// each, and the scores of those ahead.
constexpr u32 gmma_static_smem(GmmaKind kind) {
    constexpr u32 kClusterStats = 8, kFactor = 4, kGroupStats = 32, kRest = 1024;
    GmmaForm const form = gmma_shape(kind).form;
    u32 const query = form == GmmaForm::kNarrow ? (kind.head_dim + 127) / 128 * 256 : 0;
    u32 const row = form == GmmaForm::kWide ? kMostGmmaGroups * kGroupStats : query + kFactor;
    u32 const verdicts = kGmmaVerdicts * (kind.m_tile * 16 + 20) + gmma_ahead(kind.m_tile) * 64 * kind.m_tile * 4;
    return kind.m_tile * (row + kClusterStats) + kRest + (kind.skips ? kMostGmmaGroups * verdicts : 0);
}

// Bytes of dynamic shared memory: operands and rings, and in their place at the end the partial result of each warp, or of each group.
constexpr u32 gmma_dynamic_smem(GmmaShape shape, u32 head_dim, u32 kv_bytes, u32 m_tile, u32 groups, u32 items) {
    u32 const rings = gmma_operand_bytes(shape, kv_bytes, m_tile, groups) + groups * items * shape.item_bytes;
    u32 const partials = groups * (shape.form == GmmaForm::kNarrow ? 4 : 1) * partial_floats(m_tile, head_dim) * 4;
    return kGmmaAlignment + (rings > partials ? rings : partials);
}

}  // namespace xqajit::device
