// What gmma derives from the instance.
#pragma once

#include "common/instance.cuh"
#include "gmma/launch.h"

namespace xqajit::device {

struct Config : TensorInstance {
    static constexpr bool kFp8Math = !kExact16;  // q and the weights are rounded to e4m3
    static constexpr GmmaKind kKind = {kHeadDim, type_bytes(kKvType), kMTile, kFp8Math, kSkipSoftmax};
    static constexpr GmmaShape kShape = gmma_shape(kKind);
    static constexpr u32 kSegment = kShape.segment_bytes, kSegments = kShape.segments;
    static constexpr u32 kSegmentElems = kSegment / type_bytes(kKvType);
    // A lane's vectors of the two chunks of K in a segment of 128 bytes are neighbours: so eight lanes, of two tokens, meet all banks.
    static constexpr u32 kChunksSegment = kSegment / 64;
    static constexpr u32 kChunksK = kSegments * kChunksSegment;
    // The first element of the 16 bytes that lane%4 == quarter has of a chunk.
    static constexpr u32 key_element(u32 chunk, u32 quarter) {
        return chunk / kChunksSegment * kSegmentElems + (quarter * kChunksSegment + chunk % kChunksSegment) * kVecElems;
    }
    // V: 8 lanes hold a segment of a token with one load; an mma tile has 16 elements as its rows.
    static constexpr u32 kValueBytes = kSegment / 8;  // of a lane's load
    static constexpr u32 kWordsV = kValueBytes / 4;
    static constexpr u32 kElemsV = kValueBytes / type_bytes(kKvType);
    static constexpr u32 kChunkV = kSegmentElems;
    static constexpr u32 kChunksV = kSegments;
    static constexpr u32 kTilesV = kChunkV / 16;
    static constexpr u32 kTile = kShape.tile_tokens;  // tokens of an item of the ring
    static constexpr u32 kTileTokens = kTile / 4;     // of a warp
    static constexpr u32 kTokenTiles = kTileTokens / 16;
    static constexpr u32 kItemBytes = kShape.item_bytes;
    static constexpr u32 kMostItems = max_of(kMostGmmaItems, kMostGmmaGroups* kLeastGmmaItems);  // barriers for so many
    // wide.cuh, tall.cuh: a group multiplies a whole tile by wgmma.
    static constexpr u32 kQueryVectors = kSegments * kSegmentElems / 8;  // of q, eight elements each: whole segments of K's row
    static constexpr u32 kKeySteps = kFp8Math ? (kHeadDim + 31) / 32 : kHeadDim / 16;
    static constexpr u32 kValueTiles = kSegments * kSegmentElems / 64;  // of 64 elements

    static_assert(kExact16 || kKvType == Type::kFp8E4m3, "numeric fp8 goes with fp8_e4m3 KV");
    static_assert(!kSkipSoftmax || kShape.form == GmmaForm::kNarrow, "only a narrow block skips tiles");
    static_assert(!kSkipSoftmax || !kInputKv, "a launch that appends skips no tile");
    static_assert(!kMla, "gmma has no MLA");
    static_assert(kBeamWidth == 1, "a tile's tokens have one page table");
    static_assert(kMTile == 8 || (kMTile == kMostNarrowRows && (kHeadDim <= 128 || kFp8Math)) || (kMTile == 32 && kHeadDim >= 64) ||
                      (kMTile == 64 && kHeadDim >= 64 && kHeadDim <= 128),
                  "M tile is 8 rows, 16 up to head dim 128 or in fp8 math, 32 from head dim 64 on, or 64 from 64 to 128");
    static_assert(kPageSize <= 128, "page size is at most 128");
};

}  // namespace xqajit::device
