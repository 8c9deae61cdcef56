// Skip-softmax: both roles' loops over the tiles where V of a tile is copied only once its scores are known. K runs kAhead tiles of each
// group ahead of V, so that the memory is busy while verdicts come. The items of a ring, but for V of the tiles that are skipped:
//   K0 .. K5, V0, K6, V1, K7 ...    with kAhead 6
#pragma once

#include "gmma/consume.cuh"
#include "gmma/produce.cuh"

namespace xqajit::device {

inline i32 page_of_tile(PageWindow& pages, Work const& work, u32 tile, u32 lane) {
    if constexpr (Config::kPageSize == 0) return static_cast<i32>(work.request);
    u32 const page = tile * Config::kTile / kTokensPerPage;
    return pages.index(page, lane, page + min_of(lane, kBoxes - 1));
}

// To the next item of the group's ring, once it is free.
inline void copy_to_ring(TensorMap const& map, Work const& work, u32 tile, i32 page, RingPlace const& ring, u32 group,
                         RingTurn& turn, u32 lane) {
    u32 const index = ring.index(group, turn.item);
    wait_phase(ring.empty_at(index), turn.parity);
    copy_tile(map, work, tile, page, ring.item_at(index), ring.full_at(index));
    turn.next(ring);
}

// The copying warp's.
inline void copy_judged_tiles(KernelArgs const& args, TensorMap const& k_map, TensorMap const& v_map, Work const& work, Tiles tiles,
                              PageWindow& k_pages, PageWindow& v_pages, RingPlace const& ring, Verdicts& verdicts, u32 lane) {
    bool const judges = may_skip(args, work);
    Judge judge{work.nb_rows, log2_approx(args.skip_threshold) - log2_approx(static_cast<float>(work.len))};
    RingTurn turn{0, 1}, other{0, 1};  // of the group whose turn it is, and of the other one
    u32 const behind = kAhead * ring.nb_groups;
    u32 group = 0, count = 0;  // of the group's tiles so far
    u32 skipped = 0;
    for (u32 tile = tiles.begin; tile < tiles.end + behind; ++tile) {
        if (tile >= tiles.begin + behind) {
            i32 const page = page_of_tile(v_pages, work, tile - behind, lane);  // also where it is skipped: pages come in order
            if (judges && judge.skips(verdicts, {group, count - kAhead}, lane)) {
                ++skipped;
            } else {
                copy_to_ring(v_map, work, tile - behind, page, ring, group, turn, lane);
            }
        }
        if (tile < tiles.end) copy_to_ring(k_map, work, tile, page_of_tile(k_pages, work, tile, lane), ring, group, turn, lane);
        if (++group == ring.nb_groups) group = 0, ++count;
        if (ring.nb_groups == 2) {
            RingTurn const mine = turn;
            turn = other;
            other = mine;
        }
    }
    if (args.skipped_tiles != nullptr && lane == 0 && tiles.begin < tiles.end) {
        add_to(args.skipped_tiles, skipped);
        add_to(args.skipped_tiles + 1, tiles.end - tiles.begin);
    }
}

// The consumers'. Each step weighs V of the tile kAhead before, if that is not skipped, and scores one.
inline void attend_judged_tiles(KernelArgs const& args, RingPlace const& ring, Work const& work, Verdicts& verdicts, u32 warp,
                                Lane lane, u32 query, Factors const& factors, WarpState& state) {
    u32 const group = warp / 4, row = warp % 4 * Config::kTileTokens;
    bool const tells = lane.eighth == 0 && lane.quarter == 0;
    bool const judged = may_skip(args, work);
    Tiles const tiles = tiles_of(work.share);
    u32 const behind = kAhead * ring.nb_groups;
    RingTurn turn;
    u32 count = 0;  // of the group's tiles so far
    for (u32 tile = tiles.begin + group; tile < tiles.end + behind; tile += ring.nb_groups, ++count) {
        VerdictPlace const before{group, count - kAhead}, now{group, count};
        if (count >= kAhead && !(judged && hear_verdict(verdicts, before))) {
            Scores const scores = held_scores(verdicts, before);
            Weights weights;
#pragma unroll
            for (u32 n = 0; n < Config::kRowTiles; ++n) weigh(factors, scores, n, state, weights);
            u32 const index = ring.index(group, turn.item);
            ValueFragments values;
            wait_phase(ring.full_at(index), turn.parity);
            load_values(ring.item_at(index), row, (tile - behind) * Config::kTile + row, work.share, lane, values);
            multiply_values(values, weights, state);
            free_item(ring.empty_at(index), tells);
            turn.next(ring);
        }
        if (tile >= tiles.end) continue;
        u32 const first = tile * Config::kTile + row, index = ring.index(group, turn.item);
        KeyFragments keys;
        wait_phase(ring.full_at(index), turn.parity);
        load_keys(ring.item_at(index), row, lane, keys);
        Scores scores = multiply_keys(keys, query);
        free_item(ring.empty_at(index), tells);
        turn.next(ring);
        bool const hidden = has_hidden(work, first);
        Pair largest[Config::kRowTiles];
#pragma unroll
        for (u32 n = 0; n < Config::kRowTiles; ++n) {
            largest[n] = mask_scores(args, work, factors, first, hidden, n, lane, scores);
            follow_largest(largest[n], n, state);
        }
        if (judged) tell_largest(verdicts, now, warp % 4, lane, largest);
        hold_scores(verdicts, now, scores);
    }
}

}  // namespace xqajit::device
