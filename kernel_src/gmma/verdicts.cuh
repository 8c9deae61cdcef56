// Skip-softmax: what the consumers and the copying warp tell each other of a tile before its V is copied, or not.
//
// A group's tiles are counted from 0, and what is told of the i-th lies at place i % kGmmaVerdicts. No place is used anew too early: a
// warp that tells of tile i has heard the verdict on tile i - kAhead, and so has read all up to it, as the copying warp has.
#pragma once

#include "gmma/config.cuh"

#include "common/barrier.cuh"
#include "common/rows.cuh"

namespace xqajit::device {

constexpr u32 kAhead = gmma_ahead(Config::kMTile);
static_assert(kAhead < kGmmaVerdicts && (kGmmaVerdicts & (kGmmaVerdicts - 1)) == 0);

struct Verdicts {
    u64 scored[kMostGmmaGroups][kGmmaVerdicts];  // a group's four warps arrive when their parts of `largest` are there
    u64 judged[kMostGmmaGroups][kGmmaVerdicts];  // the copying warp arrives when `skipped` is there
    u32 skipped[kMostGmmaGroups][kGmmaVerdicts];
    float largest[kMostGmmaGroups][kGmmaVerdicts][4 * Config::kMTile];  // [warp][row]; log2 units
    // Masked scores of the tiles whose V is still to come; each thread reads what it wrote. [16 tokens of a warp][8 rows][thread]
    Quad held[kMostGmmaGroups][kAhead][Config::kTokenTiles][Config::kRowTiles][128];
};

inline void init_verdicts(Verdicts& verdicts, u32 lane) {
    constexpr u32 kPlaces = kMostGmmaGroups * kGmmaVerdicts;
    static_assert(kPlaces <= 32);
    if (lane >= kPlaces) return;
    init_barrier(shared_address(verdicts.scored) + lane * 8, 4);
    init_barrier(shared_address(verdicts.judged) + lane * 8, 1);
}

// The tile-th of a group.
struct VerdictPlace {
    u32 group, tile;

    u32 place() const { return tile % kGmmaVerdicts; }
    u32 parity() const { return tile / kGmmaVerdicts % 2; }
};

// Short requests skip nothing: where threshold / length reaches 1, all tiles but the largest would be skipped.
inline bool may_skip(KernelArgs const& args, Work const& work) {
    return args.skip_threshold > 0.0f && args.skip_threshold < static_cast<float>(work.len);
}

// Of one warp of four: its largest scores, from this lane's of each column.
inline void tell_largest(Verdicts& verdicts, VerdictPlace at, u32 warp, Lane lane, Pair const (&of_lane)[Config::kRowTiles]) {
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
        Pair largest = of_lane[n];
#pragma unroll
        for (u32 mask = 4; mask <= 16; mask *= 2) {
            largest.x = fmaxf(largest.x, shuffle_xor(largest.x, mask));
            largest.y = fmaxf(largest.y, shuffle_xor(largest.y, mask));
        }
        if (lane.eighth == 0)
            *reinterpret_cast<Pair*>(&verdicts.largest[at.group][at.place()][warp * Config::kMTile + n * 8 + 2 * lane.quarter]) =
                largest;
    }
    __syncwarp();
    if (lane.eighth == 0 && lane.quarter == 0) arrive(shared_address(&verdicts.scored[at.group][at.place()]));
}

inline bool hear_verdict(Verdicts const& verdicts, VerdictPlace at) {
    wait_phase(shared_address(&verdicts.judged[at.group][at.place()]), at.parity());
    return verdicts.skipped[at.group][at.place()] != 0;
}

inline void hold_scores(Verdicts& verdicts, VerdictPlace at, Scores const& scores) {
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 n = 0; n < Config::kRowTiles; ++n) {
            float const(&value)[4] = scores.tile[tile][n].value;
            verdicts.held[at.group][at.tile % kAhead][tile][n][threadIdx.x % 128] = Quad{{value[0], value[1], value[2], value[3]}};
        }
    }
}

inline Scores held_scores(Verdicts const& verdicts, VerdictPlace at) {
    Scores scores;
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 n = 0; n < Config::kRowTiles; ++n) {
            Quad const quad = verdicts.held[at.group][at.tile % kAhead][tile][n][threadIdx.x % 128];
            scores.tile[tile][n] = Tile{{quad.value[0], quad.value[1], quad.value[2], quad.value[3]}};
        }
    }
    return scores;
}

// The copying warp's memory of the block's tiles. It judges them in their order, whichever group has them, so that its verdicts depend on
// nothing but the scores.
struct Judge {
    u32 nb_rows;
    float limit;                          // log2 units, negative
    float largest = negative_infinity();  // of the tiles before; lane i has row i % kMTile

    // Whether every row's scores lie below the largest before by more than the limit. A row that has seen no token yet keeps the tile, so
    // the first one is always read.
    bool skips(Verdicts& verdicts, VerdictPlace at, u32 lane) {
        wait_phase(shared_address(&verdicts.scored[at.group][at.place()]), at.parity());
        float tile = negative_infinity();
#pragma unroll
        for (u32 i = 0; i < 4 * Config::kMTile; i += 32) tile = fmaxf(tile, verdicts.largest[at.group][at.place()][i + lane]);
#pragma unroll
        for (u32 mask = Config::kMTile; mask < 32; mask *= 2) tile = fmaxf(tile, shuffle_xor(tile, mask));
        bool const skipped = __all_sync(0xffffffffu, lane % Config::kMTile >= nb_rows || tile < largest + limit);
        largest = fmaxf(largest, tile);
        __syncwarp();  // all have read
        if (lane == 0) {
            verdicts.skipped[at.group][at.place()] = skipped;
            arrive(shared_address(&verdicts.judged[at.group][at.place()]));
        }
        return skipped;
    }
};

}  // namespace xqajit::device
