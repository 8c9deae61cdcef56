// What hmma derives from the instance.
#pragma once

#include "common/instance.cuh"
#include "hmma/launch.h"

namespace xqajit::device {

struct Config : TensorInstance {
    // A chunk of K is consecutive elements.
    static constexpr u32 kChunksK = (kHeadDim + kChunkK - 1) / kChunkK;
    // The first element of the 16 bytes that lane%4 == quarter has of a chunk.
    static constexpr u32 key_element(u32 chunk, u32 quarter) { return chunk * kChunkK + quarter * kVecElems; }
    // V: 8 lanes hold kChunkV consecutive elements of a token with one load; an mma tile has 16 of them as its rows.
    static constexpr HmmaShape kShape = hmma_shape(kHeadDim, type_bytes(kKvType), kMTile);
    static constexpr u32 kWordsV = kShape.value_bytes / 4;
    static constexpr u32 kElemsV = kShape.value_bytes / type_bytes(kKvType);  // of a lane's load
    static constexpr u32 kChunkV = 8 * kElemsV;
    static constexpr u32 kChunksV = (kHeadDimV + kChunkV - 1) / kChunkV;
    static constexpr u32 kTilesV = kChunkV / 16;
    static constexpr u32 kTileTokens = kShape.tile_tokens;  // of the step of a warp, or of a team
    static constexpr u32 kTokenTiles = kTileTokens / 16;
    static constexpr bool kHasTeams = kMTile > kMostWarpRows;
    static constexpr u32 kTeamWarps = kShape.team_warps;
    static constexpr u32 kMostTeams = kShape.max_threads / 32 / kTeamWarps;

    static_assert(kExact16, "8-bit KV becomes fp16: numeric is exact16");
    static_assert(!kSkipSoftmax, "hmma reads every visible token");
    static_assert(!kInputKv, "hmma does not append");
    static_assert(!kMla, "hmma has no MLA");
    static_assert(kMTile == 8 || kMTile == 16 || kMTile == 32 || kMTile == 64, "M tile is 8, 16, 32 or 64 rows");
    static_assert(!kHasTeams || kBeamWidth == 1, "beams have tiles of up to 16 rows");
};

}  // namespace xqajit::device
