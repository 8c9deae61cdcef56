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
    float sum[2];   // of this lane's tokens; in the end of all
    float base[2];  // the largest scaled score so far less kLargestWeight, or somewhat less; kNoBase where no token was visible yet
};
constexpr float kNoBase = -3.402823466e38f;

struct ConsumerShared {
    u64 keys_ready[kMostGmmaGroups];    // the group's four warps have put their part of a tile in scratch
    u64 values_ready[kMostGmmaGroups];  // likewise
    float factor[Config::kMTile];       // see score_factor()
};

inline void init_consumers(ConsumerShared& own, u32 lane) {
    if (lane >= kMostGmmaGroups) return;
    init_barrier(shared_address(&own.keys_ready[lane]), 4);
    init_barrier(shared_address(&own.values_ready[lane]), 4);
}

inline void clear(ConsumerState& state) {
#pragma unroll
    for (u32 row = 0; row < 2; ++row) state.sum[row] = 0.0f, state.base[row] = kNoBase;
#pragma unroll
    for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
        for (u32 i = 0; i < 32; ++i) state.acc[t][i] = 0.0f;
    }
}

// s: [8 tokens][row lane/4 | + 8][token 2 * (lane%4) | + 1], as everywhere here.
inline void cap_scores(KernelArgs const& args, float const (&factor)[2], TallTile& s) {
#pragma unroll
    for (u32 i = 0; i < 32; ++i) s[i] = args.softcap * kLog2E * tanh_accurate(s[i] * factor[i / 2 % 2]);
}

// Hides what a row does not see. `first`: the tile's first token.
inline void mask_scores(KernelArgs const& args, Work const& work, u32 first, u32 warp, Lane lane, TallTile& s) {
    u64 seen[2];  // bit 8 * j: token 8 * j + 2 * (lane%4)
#pragma unroll
    for (u32 row = 0; row < 2; ++row)
        seen[row] = tokens_seen(args, work, warp * 16 + row * 8 + lane.eighth, first) >> 2 * lane.quarter;
    u64 const inside = tokens_inside(work.share, first) >> 2 * lane.quarter;
#pragma unroll
    for (u32 i = 0; i < 32; ++i) s[i] = (seen[i / 2 % 2] & inside) >> (i / 4 * 8 + i % 2) & 1 ? s[i] : negative_infinity();
}

// Raises the rows' bases to the tile's largest scores, and what was summed so far with them. `largest`: of this lane's.
inline void raise_bases(float (&largest)[2], float const (&scale)[2], ConsumerState& state) {
#pragma unroll
    for (u32 row = 0; row < 2; ++row) {
        largest[row] = fmaxf(largest[row], shuffle_xor(largest[row], 1));
        largest[row] = fmaxf(largest[row], shuffle_xor(largest[row], 2));
        float const scaled = largest[row] * scale[row] - kLargestWeight;
        if (!(scaled > state.base[row])) continue;
        float const rescale = exp2_approx(state.base[row] - scaled);
        state.base[row] = scaled;
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
    bool above = false;
#pragma unroll
    for (u32 row = 0; row < 2; ++row) above |= fmaf(largest[row], scale[row], -(kLargestWeight + kLag)) > state.base[row];
    if (__any_sync(0xffffffffu, above)) raise_bases(largest, scale, state);
#pragma unroll
    for (u32 i = 0; i < 32; ++i) {
        u32 const row = i / 2 % 2;
        s[i] = exp2_approx(fmaf(s[i], scale[row], -state.base[row]));
        state.sum[row] += s[i];
    }
}

// A warp's lanes have read an item and written scratch: the arrival at `barriers`.
template <class... Barriers> inline void tell(bool tells, Barriers... barriers) {
    order_before_copies();
    __syncwarp();
    if (tells) (arrive(barriers), ...);
}

// Leaves the group's partial result in `state`, or nothing where the block has no work.
//
// The scores of a tile begin while the values of the one before are multiplied. The last tile is followed by none: what its successor's scores are of does not matter, as
// nobody takes them, but the compiler would let products wait for one another if they depended on a condition.
inline void consume(KernelArgs const& args, RingPlace const& ring, Shared& shared, ConsumerShared& own, u32 warp, Lane lane,
                    ConsumerState& state) {
    u32 const group = uniform(warp / 4), in_group = uniform(warp % 4), in_warp = lane.eighth * 4 + lane.quarter;
    u32 const query = ring.items - operand_bytes(ring.nb_groups), scratch = ring.items - (ring.nb_groups - group) * kScratchBytes;
    u32 const keys_ready = shared_address(&own.keys_ready[group]), values_ready = keys_ready + sizeof(own.keys_ready);
    bool const tells = in_warp == 0;
    wait_phase(shared_address(&shared.work_ready), 0);
    Work const& work = shared.work;  // read anew in each step: the loop needs the registers
    if (!has_work(work)) return;
    store_query(args, work, query, 4 * ring.nb_groups, warp, in_warp, [&](u32 m, float factor) { own.factor[m] = factor; });
    share_query(shared);
    clear(state);
    wait_phase(shared_address(&shared.query_ready), 0);
    float const factor[2] = {own.factor[in_group * 16 + lane.eighth], own.factor[in_group * 16 + lane.eighth + 8]};
    float const scale[2] = {softened_factor(factor[0]), softened_factor(factor[1])};
    Tiles const tiles = tiles_of(work.share), whole = whole_tiles(work);
    u32 tile = tiles.begin + group, values = scratch + kKeyScratchBytes, parity = 0;
    RingTurn turn;
    TallTile s;
    auto const start_next_scores = [&] {
        u32 const index = ring.index(group, turn.item), item = uniform(ring.item_at(index)), empty = ring.empty_at(index);
        bool const any = tile < tiles.end;
        if (any) wait_phase(ring.full_at(index), turn.parity);
        if constexpr (kTo16Bits) {
            if (any) widen_item(item, scratch, threadIdx.x % 128, 0, {0, ~0u});
            wait_for_products();
            tell(tells, keys_ready);
            if (any && tells) arrive(empty);
            wait_phase(keys_ready, parity);
        }
        start_scores(query, kTo16Bits ? scratch : item, s);
    };
    start_next_scores();
    while (tile < tiles.end) {
        u32 const first = tile * Config::kTile, k_empty = ring.empty_at(ring.index(group, turn.item));
        turn.next(ring);
        u32 const v_index = ring.index(group, turn.item), v_item = ring.item_at(v_index), v_empty = ring.empty_at(v_index);
        u32 const operand = uniform(Config::k8Bit ? values : v_item);
        bool const is_whole = tile >= whole.begin && tile < whole.end;
        if constexpr (Config::k8Bit) {
            wait_phase(ring.full_at(v_index), turn.parity);
            if constexpr (kTo16Bits) {
                widen_item(v_item, values, threadIdx.x % 128, first, work.share);
            } else {
                if (!is_whole) clear_outside(v_item, first, work.share, 1 + threadIdx.x / 128, threadIdx.x % 128);
                transpose_values(v_item, values, in_group, in_warp);
            }
        }
        wait_for_products();
        if constexpr (Config::k8Bit) tell(tells, v_empty, values_ready);
        if (!kTo16Bits && tells) arrive(k_empty);
        if constexpr (Config::kHasSoftcap) cap_scores(args, factor, s);
        if (!is_whole) mask_scores(args, work, first, in_group, lane, s);
        soften(scale, s, state);
        TallWeights const weights = pack_weights(s);
        if constexpr (Config::k8Bit) {
            wait_phase(values_ready, parity);
        } else {
            wait_phase(ring.full_at(v_index), turn.parity);
            if (!is_whole) clear_outside(v_item, first, work.share, 1 + threadIdx.x / 128, threadIdx.x % 128);
        }
        parity ^= 1;
        turn.next(ring);
        tile += ring.nb_groups;
        multiply_values(weights, operand, state.acc, start_next_scores);
        if (!Config::k8Bit && tells) arrive(v_empty);
        if constexpr (Config::kFp8Math) values = 2 * scratch + Config::kItemBytes - values;
    }
    wait_for_products();
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
        float const max = state.base[row] == kNoBase ? negative_infinity() : state.base[row];
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
