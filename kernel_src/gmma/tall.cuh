// The role of all warps but the last with more than 32 query rows: each group of four takes every n-th tile of 64 tokens as a whole and multiplies
// it by wgmma, S = Q K^T and O += P V. Query rows are rows, 16 of 64 a warp, so a warp has all scores of its rows and keeps the weights in
// registers; tokens, then V's elements, are columns.
#pragma once

#include "gmma/tall_kv.cuh"

namespace xqajit::device {

static_assert(Config::kShape.form == GmmaForm::kTall && Config::kMTile == 64, "kernel.cu includes this for tall blocks");

// Of this lane. Its rows: lane/4 of the warp's 16 and that plus 8. weight = exp2(score * scale - base).
struct ConsumerState {
    TallTile acc[Config::kValueTiles];
    float sum[2];    // of this lane's tokens; in the end of all
    float base[2];   // the largest scaled score so far less kLargestWeight, or somewhat less
    float limit[2];  // a raw score above it raises the base; -inf where no token was visible yet
};
struct ConsumerShared {
    float factor[Config::kMTile];  // see score_factor()
};

inline void init_consumers(ConsumerShared&, u32) {}

inline void clear(ConsumerState& state) {
#pragma unroll
    for (u32 row = 0; row < 2; ++row) state.sum[row] = state.base[row] = 0.0f, state.limit[row] = negative_infinity();
#pragma unroll
    for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
        for (u32 i = 0; i < 32; ++i) state.acc[t][i] = 0.0f;
    }
}

// q and what its scores are multiplied with, by all the block's warps that compute.
inline void store_query(KernelArgs const& args, Work const& work, u32 query, ConsumerShared& own, u32 nb_groups, u32 warp,
                        u32 lane) {
    for (u32 row = warp * kQueryRowsAtOnce; row < Config::kMTile; row += nb_groups * 4 * kQueryRowsAtOnce) {
        u32 const m = row + lane / kQueryLanes;
        float const factor = store_query_vector(args, work, query, m, lane % kQueryLanes);
        if (lane % kQueryLanes == 0) own.factor[m] = factor;
    }
}

// s: [8 tokens][row lane/4 | + 8][token 2 * (lane%4) | + 1], as everywhere here.
inline void cap_scores(KernelArgs const& args, float const (&factor)[2], TallTile& s) {
#pragma unroll
    for (u32 i = 0; i < 32; ++i) s[i] = args.softcap * kLog2E * tanh_accurate(s[i] * factor[i / 2 % 2]);
}

// Hides what a row does not see. `first`: the tile's first token.
inline void mask_scores(KernelArgs const& args, Work const& work, u32 first, u32 warp, Lane lane, TallTile& s) {
    if (first >= max_of(work.share.begin, work.common.begin) && first + 64 <= min_of(work.share.end, work.common.end)) return;
    u32 hidden = 0;
#pragma unroll 4
    for (u32 i = 0; i < 32; ++i) {
        u32 const t = first + i / 4 * 8 + 2 * lane.quarter + i % 2, m = warp * 16 + i / 2 % 2 * 8 + lane.eighth;
        bool const sees =
            inside(work.share, t) && (Config::kSpecDec == SpecDec::kNone || (m < work.nb_rows && row_sees(args, work, m, t)));
        hidden |= (sees ? 0u : 1u) << i;
    }
#pragma unroll
    for (u32 i = 0; i < 32; ++i) s[i] = hidden >> i & 1u ? negative_infinity() : s[i];
}

// Raises the rows' bases to the tile's largest scores, and what was summed so far with them. `largest`: of this lane's.
inline void raise_bases(float (&largest)[2], float const (&scale)[2], ConsumerState& state) {
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
        largest[row] = fmaxf(largest[row], shuffle_xor(largest[row], 1));
        largest[row] = fmaxf(largest[row], shuffle_xor(largest[row], 2));
        float const scaled = largest[row] * scale[row] - kLargestWeight;
        bool const first = state.limit[row] == negative_infinity();
        if (largest[row] == negative_infinity() || (!first && scaled <= state.base[row])) continue;
        float const rescale = first ? 1.0f : exp2_approx(state.base[row] - scaled);
        state.base[row] = scaled;
        state.limit[row] = (scaled + kLargestWeight + kWideLag) / scale[row];
        state.sum[row] *= rescale;
#pragma unroll
        for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
            for (u32 i = 0; i < 32; ++i) {
                if (i / 2 % 2 == row) state.acc[t][i] *= rescale;
            }
        }
    }
}

// Scores to weights.
inline void soften(float const (&scale)[2], TallTile& s, ConsumerState& state) {
    float largest[2] = {s[0], s[2]};
#pragma unroll
    for (u32 i = 1; i < 32; ++i) largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], s[i]);
    bool const above = largest[0] > state.limit[0] || largest[1] > state.limit[1];
    if (__any_sync(0xffffffffu, above)) raise_bases(largest, scale, state);
#pragma unroll
    for (u32 i = 0; i < 32; ++i) {
        u32 const row = i / 2 % 2;
        s[i] = exp2_approx(fmaf(s[i], scale[row], -state.base[row]));
        state.sum[row] += s[i];
    }
}

// Leaves the group's partial result in `state`, or nothing where the block has no work.
inline void consume(KernelArgs const& args, RingPlace const& ring, Shared& shared, ConsumerShared& own, u32 warp, Lane lane,
                    ConsumerState& state) {
    u32 const group = warp / 4, in_group = warp % 4, barrier = 1 + group, of_warp = lane.eighth * 4 + lane.quarter;
    u32 const thread = in_group * 32 + of_warp;
    u32 const query = ring.items - operand_bytes(ring.nb_groups), scratch = ring.items - (ring.nb_groups - group) * kScratchBytes;
    wait_phase(shared_address(&shared.work_ready), 0);
    Work const& work = shared.work;  // read anew in each step: the loop needs the registers
    if (!has_work(work)) return;
    store_query(args, work, query, own, ring.nb_groups, warp, of_warp);
    order_before_copies();
    arrive(shared_address(&shared.query_ready));
    clear(state);
    wait_phase(shared_address(&shared.query_ready), 0);
    float const factor[2] = {own.factor[in_group * 16 + lane.eighth], own.factor[in_group * 16 + lane.eighth + 8]};
    float const scale[2] = {softened_factor(factor[0]), softened_factor(factor[1])};
    Tiles const tiles = tiles_of(work.share);
    bool const tells = of_warp == 0;
    u32 values = kWidens ? scratch + kWideItemBytes : scratch;  // in fp8 math two tiles take turns
    RingTurn turn;
    for (u32 tile = tiles.begin + group; tile < tiles.end; tile += ring.nb_groups) {
        u32 const first = tile * Config::kTile, k_index = ring.index(group, turn.item);
        TallTile s;
        wait_phase(ring.full_at(k_index), turn.parity);
        if constexpr (kWidens) {
            widen_item(ring.item_at(k_index), ring.empty_at(k_index), scratch, thread, first, {0, ~0u}, tells);
            order_before_copies();
            sync_some(barrier, 128);
        }
        start_scores(query, kWidens ? scratch : ring.item_at(k_index), s);
        turn.next(ring);
        u32 const v_index = ring.index(group, turn.item), v_item = ring.item_at(v_index);
        if constexpr (Config::k8Bit) {
            wait_phase(ring.full_at(v_index), turn.parity);
            if constexpr (Config::kFp8Math) {
                clear_outside(v_item, first, work.share, barrier, thread);
                transpose_values(v_item, ring.empty_at(v_index), values, in_group, of_warp, tells);
            } else {
                widen_item(v_item, ring.empty_at(v_index), values, thread, first, work.share, tells);
            }
            order_before_copies();
        }
        wait_for_products();
        if (!kWidens && tells) arrive(ring.empty_at(k_index));
        if constexpr (Config::kHasSoftcap) cap_scores(args, factor, s);
        mask_scores(args, work, first, in_group, lane, s);
        soften(scale, s, state);
        TallWeights const weights = pack_weights(s);
        if constexpr (Config::k8Bit) {
            sync_some(barrier, 128);
            multiply_values(weights, values, state.acc);
            if constexpr (Config::kFp8Math) values = 2 * scratch + Config::kItemBytes - values;
        } else {
            wait_phase(ring.full_at(v_index), turn.parity);
            clear_outside(v_item, first, work.share, barrier, thread);
            multiply_values(weights, v_item, state.acc);
            if (tells) arrive(ring.empty_at(v_index));
        }
        turn.next(ring);
    }
    let_next_grids_start();
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
        state.sum[row] += shuffle_xor(state.sum[row], 1);
        state.sum[row] += shuffle_xor(state.sum[row], 2);
    }
}

// This group's partial result, where finish() takes it up.
inline void store_state(ConsumerState const& state, ConsumerShared const&, float* partials, u32 warp, Lane lane) {
    float* const partial = partials + warp / 4 * kPartialFloats;
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
        u32 const m = warp % 4 * 16 + lane.eighth + 8 * row;
        float const max = state.limit[row] == negative_infinity() ? negative_infinity() : state.base[row];
        if (lane.quarter == 0) *reinterpret_cast<Pair*>(stats_of(partial, m)) = Pair{max, state.sum[row]};
#pragma unroll
        for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
            for (u32 j = 0; j < 8; ++j) {
                u32 const element = t * 64 + j * 8 + 2 * lane.quarter;
                if (element >= Config::kHeadDimV) continue;
                *reinterpret_cast<Pair*>(partial + 4 * place_of_quad(m, element / 4) + element % 4) =
                    Pair{state.acc[t][4 * j + 2 * row], state.acc[t][4 * j + 2 * row + 1]};
            }
        }
    }
}

}  // namespace xqajit::device
