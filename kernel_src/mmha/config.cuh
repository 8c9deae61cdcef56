// What mmha derives from the instance.
#pragma once

#include "common/instance.cuh"

namespace xqajit::device {

struct Config : Instance {
    static constexpr u32 kThreads = kMmhaThreads;
    static constexpr u32 kWarps = kThreads / 32;
    static constexpr u32 kVecsK = kHeadDim / kVecElems;  // vectors of one K row
    static constexpr u32 kVecsV = kHeadDimV / kVecElems;
    static constexpr u32 kLanes = min_of(32, power_of_two_at_least(kVecsK));  // lanes that share one token
    static constexpr u32 kTokensAtOnce = 32 / kLanes;                         // tokens one warp instruction loads
    static constexpr u32 kLaneVecsK = (kVecsK + kLanes - 1) / kLanes;         // vectors of a K row that one lane holds
    static constexpr u32 kLaneVecsV = (kVecsV + kLanes - 1) / kLanes;
    static constexpr u32 kLaneElemsK = kLaneVecsK * kVecElems;
    static constexpr u32 kLaneElemsV = kLaneVecsV * kVecElems;
    // Loads in flight a lane: as many as the registers beside q, the accumulators and a beam's page indices hold.
    static constexpr u32 kUnroll =
        max_of(1, (kMTile * kVecElems <= 16 && kBeamWidth == 1 ? 8 : 4) / power_of_two_at_least(kLaneVecsK));
    static constexpr u32 kTileTokens = kUnroll * kTokensAtOnce;  // tokens of one warp's step; a power of two
    // Blocks an SM that the register count must allow. Few lanes a token means many scores a lane; beams and drafts need
    // registers too.
    static constexpr bool kNeedsMore = kLanes < 8 || kBeamWidth > 1 || kSpecDec != SpecDec::kNone;
    static constexpr u32 kMinBlocks = kMTile * kLaneElemsK <= 16 ? (kNeedsMore ? 3 : 4) : 2;

    static_assert(kExact16, "8-bit KV becomes float: numeric is exact16");
    static_assert(!kSkipSoftmax, "mmha reads every visible token");
    static_assert(!kInputKv, "mmha does not append");
    static_assert(kMTile == 1 || kMTile == 2, "M tile is 1 or 2 rows");
};

}  // namespace xqajit::device
