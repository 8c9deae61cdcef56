// Sizes that the host launches with and the kernel is compiled for: both compile this.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

// K and V come as boxes of a tensor map: the tokens of a page, of one head, and of one segment of their rows.
struct GmmaShape {
    u32 segment_bytes;  // 64 or 128: what the tensor map's swizzle goes over
    u32 segments;       // of a row; the last one may reach past the head, where the copy fills in zeros
    u32 tile_tokens;    // of an item of the ring: K or V of so many tokens
    u32 item_bytes;
    u32 blocks_an_sm;  // at once, of one group of warps each: what the registers hold
};

constexpr u32 kMostGmmaGroups = 2;      // of four warps, in a block
constexpr u32 kMostGmmaRows = 16;       // query rows of a block
constexpr u32 kGmmaAlignment = 1024;    // of the rings: the swizzle's pattern repeats so
constexpr u32 kGmmaFlight = 96 * 1024;  // bytes of an SM's rings: more on their way at once measured slower
constexpr u32 kMostGmmaItems = 12;      // of an SM's rings, likewise
constexpr u32 kLeastGmmaItems = 2;      // of one ring: K and V

// Skip-softmax: tiles that a group's K is ahead of its V, and places for what is told of a tile.
constexpr u32 gmma_ahead(u32 m_tile) { return m_tile > 8 ? 4 : 6; }
constexpr u32 kGmmaVerdicts = 8;  // a power of two, and more than tiles ahead

constexpr GmmaShape gmma_shape(u32 head_dim, u32 kv_bytes, u32 m_tile) {
    u32 const row_bytes = head_dim * kv_bytes;
    u32 const segment = row_bytes <= 64 ? 64 : 128;
    u32 const segments = (row_bytes + segment - 1) / segment;
    u32 const item = 64 * segment * segments;
    return {segment, segments, 64, item, item >= 16384 || m_tile > 8 ? 2u : 4u};
}

// One more warp copies.
constexpr u32 gmma_threads(u32 groups) { return 128 * groups + 32; }

// Items of each group's ring where an SM has so many such blocks at once.
constexpr u32 gmma_ring_items(GmmaShape shape, u32 groups, u32 blocks) {
    u32 const fitting = kGmmaFlight / shape.item_bytes;
    u32 const items = (fitting < kMostGmmaItems ? fitting : kMostGmmaItems) / (groups * blocks);
    return items < kLeastGmmaItems ? kLeastGmmaItems : items;
}

// Bytes of static shared memory, at most: q in whole segments, a factor and the cluster's statistics a row, the barriers, and what is
// kept of tiles that may be skipped: the four warps' largest scores, two barriers and a word each, and the scores of those ahead.
constexpr u32 gmma_static_smem(u32 head_dim, u32 m_tile, bool skips) {
    u32 const group = kGmmaVerdicts * (m_tile * 16 + 20) + gmma_ahead(m_tile) * 64 * m_tile * 4;
    return m_tile * ((head_dim + 127) / 128 * 256 + 12) + 1024 + (skips ? kMostGmmaGroups * group : 0);
}

// Bytes of dynamic shared memory: the rings, and in their place at the end each warp's partial result.
constexpr u32 gmma_dynamic_smem(GmmaShape shape, u32 head_dim, u32 m_tile, u32 groups, u32 items) {
    u32 const rings = groups * items * shape.item_bytes;
    u32 const partials = groups * 4 * partial_floats(m_tile, head_dim) * 4;
    return kGmmaAlignment + (rings > partials ? rings : partials);
}

}  // namespace xqajit::device
