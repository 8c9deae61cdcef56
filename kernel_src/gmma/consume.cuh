// The role of all warps but the last: in groups of four, each warp a quarter of the tokens of its group's tiles. The warps wait for
// items, not for one another.
#pragma once

#include "gmma/kv.cuh"
#include "gmma/verdicts.cuh"

#include "common/rows.cuh"

namespace xqajit::device {

static_assert(Config::kShape.form == GmmaForm::kNarrow, "kernel.cu includes this for narrow blocks");

template <bool kSkips> struct ConsumerSharedOf { Query query; };
template <> struct ConsumerSharedOf<true> {
    Query query;
    Verdicts verdicts;
};
using ConsumerShared = ConsumerSharedOf<Config::kSkipSoftmax>;

template <class Own> inline void init_consumers(Own& own, u32 lane) {
    if constexpr (Config::kSkipSoftmax) init_verdicts(own.verdicts, lane);
}

using ConsumerState = WarpState;
constexpr u32 kPartialsOfGroup = 4;  // one a warp
constexpr u32 operand_bytes(u32) { return 0; }
constexpr u32 query_arrivals(u32) { return Config::kRowTiles * 32; }

// Leaves the warp's partial result in `state`, or nothing where the block has no work.
template <class Own> inline void consume(KernelArgs const& args, RingPlace const& ring, Shared& shared, Own& own, u32 warp,
                                         Lane lane, ConsumerState& state) {
    u32 const group = warp / 4, row = warp % 4 * Config::kTileTokens;
    bool const tells = lane.eighth == 0 && lane.quarter == 0;
    wait_phase(shared_address(&shared.work_ready), 0);
    Work const& work = shared.work;  // read anew in each step: the loop needs the registers
    if (!has_work(work)) return;
    if (warp < Config::kRowTiles) {
        store_query(args, load_query(args, work, warp, lane), warp, lane, own.query);
        arrive(shared_address(&shared.query_ready));
    }
    clear(state);
    wait_phase(shared_address(&shared.query_ready), 0);
    u32 const query = shared_address(&own.query.b[0][0][0][lane.eighth * 4 + lane.quarter]);
    Factors const factors = load_factors(own.query, lane);
    Tiles const tiles = tiles_of(work.share);
    RingTurn turn;
    if constexpr (Config::kSkipSoftmax) {
        attend_judged_tiles(args, ring, work, own.verdicts, warp, lane, query, factors, state);  // see skip.cuh
        let_next_grids_start();
        add_shares(state);
        return;
    }
    for (u32 tile = tiles.begin + group; tile < tiles.end; tile += ring.nb_groups) {
        u32 const first = tile * Config::kTile + row;
        KeyFragments keys;
        u32 index = ring.index(group, turn.item);
        wait_phase(ring.full_at(index), turn.parity);
        load_keys(ring.item_at(index), row, lane, keys);
        Scores const scores = multiply_keys(keys, query);
        free_item(ring.empty_at(index), tells);
        turn.next(ring);
        Weights const weights = soften(args, work, factors, first, lane, scores, state);
        ValueFragments values;
        index = ring.index(group, turn.item);
        wait_phase(ring.full_at(index), turn.parity);
        load_values(ring.item_at(index), row, first, work.share, lane, values);
        multiply_values(values, weights, state);
        free_item(ring.empty_at(index), tells);
        turn.next(ring);
    }
    let_next_grids_start();
    add_shares(state);
}

inline void store_state(ConsumerState const& state, ConsumerShared const&, float* partials, u32 warp, Lane lane) {
    store_state(state, partials + warp * kPartialFloats, lane);
}

}  // namespace xqajit::device
