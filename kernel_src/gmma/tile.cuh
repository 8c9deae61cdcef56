// What wide and tall blocks share: a tile whose items a group multiplies as a whole.
#pragma once

#include "gmma/kv.cuh"
#include "gmma/wgmma_query.cuh"

namespace xqajit::device {

constexpr u32 kSegmentItemBytes = Config::kTile * Config::kSegment;
constexpr u32 query_arrivals(u32 nb_warps) { return 32 * nb_warps; }
constexpr u32 kPartialsOfGroup = 1;

// Of a group, and of the block: q in front of the groups' scratch, in front of the rings.
constexpr u32 kScratchBytes = gmma_scratch_bytes(Config::kShape, type_bytes(Config::kKvType), Config::kMTile);
constexpr u32 operand_bytes(u32 nb_groups) {
    return gmma_operand_bytes(Config::kShape, type_bytes(Config::kKvType), Config::kMTile, nb_groups);
}

// Log2 of the largest weight of a row whose base is exact, and how far the base may lag behind. e4m3 goes from 2^-9 to 448.
constexpr float kLargestWeight = Config::kFp8Math ? 6.0f : 0.0f, kLag = Config::kFp8Math ? 2.0f : kMaxLag;

// q is there, by all the block's warps that compute: this thread has stored its part.
inline void share_query(Shared& shared) {
    order_before_copies();
    arrive(shared_address(&shared.query_ready));
}

// Tiles of which every row sees every token, all of them the block's.
inline Tiles whole_tiles(Work const& work) {
    u32 const begin = max_of(work.share.begin, work.common.begin), end = min_of(work.share.end, work.common.end);
    return {ceil_div(begin, Config::kTile), end / Config::kTile};
}

// V outside the share has weight 0, but its place may hold anything, also NaN: zeros take it. `first`: the tile's first token. All threads
// of the group.
inline void clear_outside(u32 item, u32 first, TokenRange share, u32 barrier, u32 thread) {
    if (first >= share.begin && first + Config::kTile <= share.end) return;
    constexpr u32 kVectors = Config::kSegment / 16;
    for (u32 x = thread; x < Config::kTile * kVectors * Config::kSegments; x += 128) {
        if (!inside(share, first + x / kVectors % Config::kTile)) store_shared(item + x * 16, Vec16{{0, 0, 0, 0}});
    }
    order_before_copies();
    sync_some(barrier, 128);
}

}  // namespace xqajit::device
