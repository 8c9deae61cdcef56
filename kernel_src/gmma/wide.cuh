// The role of all warps but the last with 17 to 32 query rows, and with fewer in fp8 math: each group of four takes every n-th tile of 64 tokens
// as a whole and multiplies it by wgmma, S^T = K Q^T and O^T += V^T P^T. Tokens, then V's elements, are rows, 16 of 64 a warp; query rows are
// columns. 8-bit K and V become fp16 on their way to registers, but for fp8 math; P goes through
// shared memory.
#pragma once

#include "gmma/wide_kv.cuh"

namespace xqajit::device {

static_assert(Config::kShape.form == GmmaForm::kWide, "kernel.cu includes this for wide blocks");

constexpr u32 kColumns = Config::kMTile;  // of a group's products: the query rows
using WideTile = float[kColumns / 2];     // 64 x kColumns accumulators: see wgmma.cuh

// Of this lane. Its columns: 8 * j + 2 * quarter and the next.
struct ConsumerState {
    WideTile acc[Config::kValueTiles];
    float sum[kColumns / 4];  // of this lane's tokens; in the end of all the group's
};

// weight = exp2(score * scale - base). base: the largest scaled score so far less kLargestWeight, or somewhat less.
struct alignas(8) Affine {
    float scale, base;
};

// The columns' statistics, the same in the four warps.
struct alignas(16) GroupShared {
    Affine affine[kColumns];
    float limit[kColumns];                             // a raw score above it raises the base; -inf where no token was visible yet
    float factor[Config::kHasSoftcap ? kColumns : 1];  // of raw scores, in units of the cap
    float of_warp[4][kColumns];                        // what the warps tell one another
};
struct ConsumerShared {
    GroupShared group[kMostGmmaGroups];
};

inline void init_consumers(ConsumerShared&, u32) {}

inline void clear(ConsumerState& state) {
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) state.sum[i] = 0.0f;
#pragma unroll
    for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
        for (u32 i = 0; i < kColumns / 2; ++i) state.acc[t][i] = 0.0f;
    }
}

inline void cap_scores(KernelArgs const& args, GroupShared const& own, Lane lane, WideTile& s) {
#pragma unroll
    for (u32 i = 0; i < kColumns / 2; ++i) {
        float const factor = own.factor[i / 4 * 8 + 2 * lane.quarter + i % 2];
        s[i] = args.softcap * kLog2E * tanh_accurate(s[i] * factor);
    }
}

// Hides what a row does not see. `first`: the tile's first token.
inline void mask_scores(KernelArgs const& args, Work const& work, u32 first, u32 warp, Lane lane, WideTile& s) {
    if (first >= max_of(work.share.begin, work.common.begin) && first + 64 <= min_of(work.share.end, work.common.end)) return;
    u32 hidden = 0;
#pragma unroll 4
    for (u32 i = 0; i < kColumns / 2; ++i) {
        u32 const t = first + warp * 16 + i / 2 % 2 * 8 + lane.eighth, m = i / 4 * 8 + 2 * lane.quarter + i % 2;
        bool const sees =
            inside(work.share, t) && (Config::kSpecDec == SpecDec::kNone || (m < work.nb_rows && row_sees(args, work, m, t)));
        hidden |= (sees ? 0u : 1u) << i;
    }
#pragma unroll
    for (u32 i = 0; i < kColumns / 2; ++i) s[i] = hidden >> i & 1u ? negative_infinity() : s[i];
}

// Of column m, over the group's warps.
inline float largest_of_warps(GroupShared const& own, u32 m) {
    return fmaxf(fmaxf(own.of_warp[0][m], own.of_warp[1][m]), fmaxf(own.of_warp[2][m], own.of_warp[3][m]));
}

// Raises the columns' bases to the tile's largest scores, and what was summed so far with them. All threads of the group.
inline void raise_bases(GroupShared& own, u32 barrier, u32 warp, Lane lane, WideTile const& s, ConsumerState& state) {
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
        float largest = fmaxf(s[i / 2 * 4 + i % 2], s[i / 2 * 4 + i % 2 + 2]);
#pragma unroll
        for (u32 mask = 4; mask <= 16; mask *= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
        if (lane.eighth == 0) own.of_warp[warp][i / 2 * 8 + 2 * lane.quarter + i % 2] = largest;
    }
    sync_some(barrier, 128);
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
        u32 const m = i / 2 * 8 + 2 * lane.quarter + i % 2;
        float const largest = largest_of_warps(own, m);
        float const scaled = largest * own.affine[m].scale - kLargestWeight;
        bool const first = own.limit[m] == negative_infinity();
        float const rescale = first || scaled <= own.affine[m].base ? 1.0f : exp2_approx(own.affine[m].base - scaled);
        state.sum[i] *= rescale;
#pragma unroll
        for (u32 t = 0; t < Config::kValueTiles; ++t) {
            state.acc[t][i / 2 * 4 + i % 2] *= rescale;
            state.acc[t][i / 2 * 4 + i % 2 + 2] *= rescale;
        }
    }
    sync_some(barrier, 128);
    u32 const m = warp * 32 + lane.eighth * 4 + lane.quarter;
    if (m < kColumns) {
        float const largest = largest_of_warps(own, m);
        float const scale = own.affine[m].scale, scaled = largest * scale - kLargestWeight;
        if (largest != negative_infinity() && (own.limit[m] == negative_infinity() || scaled > own.affine[m].base)) {
            own.affine[m].base = scaled;
            own.limit[m] = (scaled + kLargestWeight + kLag) / scale;
        }
    }
    sync_some(barrier, 128);
}

// A group's weights, swizzled: P^T, [64 tokens][kColumns] in rows of 128 bytes; in fp8 math P, [kColumns][64 tokens] in rows of 64, of each 16
// tokens in the order 0, 1, 8, 9, 2, 3, 10, 11 and so on.
// Where this lane stores its weights of the first columns. Matrix i of four: columns 8 * (i / 2) and on, tokens i % 2 * 8 and on; this lane
// names a row of matrix lane/8. In fp8 math: transposed it has column lane/4 of tokens 2 * (lane%4), the next, and those plus 8.
inline u32 place_of_weights(u32 weights, u32 warp, Lane lane) {
    if constexpr (Config::kFp8Math) return weights + swizzled<64>(lane.eighth, warp) + 4 * lane.quarter;
    u32 const matrix = lane.eighth / 2, token = warp * 16 + matrix % 2 * 8 + lane.eighth % 2 * 4 + lane.quarter;
    return weights + swizzled<128>(token, matrix / 2);
}

// This lane's weights of 8 columns from 8 * j on, and of the next 8: [column of 8][half of the 16 tokens][2].
inline void store_weights(u32 place, u32 j, float const* weight) {
    u32 word[4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) word[i] = pack_operands(weight[2 * i], weight[2 * i + 1]);
    store_matrices(place ^ (j << 4), word);
}

// This lane's weights of 8 columns from 8 * j on.
inline void store_fp8_weights(u32 place, u32 j, float const* weight) {
    u32 const low = half2_to_e4m3(transpose(pack_operands(weight[0], weight[1])));
    u32 const high = half2_to_e4m3(transpose(pack_operands(weight[2], weight[3])));
    store_shared(place + j * 512, low | high << 16);
}

// Scores to weights, which go to `weights` in shared memory.
inline void soften(GroupShared& own, u32 barrier, u32 warp, Lane lane, WideTile& s, u32 weights, ConsumerState& state) {
    bool above = false;
#pragma unroll
    for (u32 j = 0; j < kColumns / 8; ++j) {
        Pair const limit = *reinterpret_cast<Pair const*>(&own.limit[8 * j + 2 * lane.quarter]);
        above |= s[4 * j] > limit.x || s[4 * j + 2] > limit.x || s[4 * j + 1] > limit.y || s[4 * j + 3] > limit.y;
    }
    // Past it no warp reads the last tile's weights any more.
    if (any_of_group(barrier, above)) raise_bases(own, barrier, warp, lane, s, state);
    u32 const place = place_of_weights(weights, warp, lane);
#pragma unroll
    for (u32 j = 0; j < kColumns / 8; ++j) {
        float* const score = &s[4 * j];
        Quad const affine =  // both columns'
            *reinterpret_cast<Quad const*>(&own.affine[8 * j + 2 * lane.quarter]);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
#pragma unroll
            for (u32 side = 0; side < 2; ++side) {
                float& weight = score[2 * half + side];
                weight = exp2_approx(fmaf(weight, affine.value[2 * side], -affine.value[2 * side + 1]));
                state.sum[2 * j + side] += weight;
            }
        }
        if constexpr (Config::kFp8Math) {
            store_fp8_weights(place, j, &s[4 * j]);
        } else if (j % 2 != 0) {
            store_weights(place, j - 1, &s[4 * (j - 1)]);
        }
    }
}

// Adds the lanes' and the warps' sums; all threads of the group.
inline void add_sums(GroupShared& own, u32 barrier, u32 warp, Lane lane, ConsumerState& state) {
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
#pragma unroll
        for (u32 mask = 4; mask <= 16; mask *= 2) state.sum[i] += shuffle_xor(state.sum[i], mask);
        if (lane.eighth == 0) own.of_warp[warp][i / 2 * 8 + 2 * lane.quarter + i % 2] = state.sum[i];
    }
    sync_some(barrier, 128);
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
        u32 const m = i / 2 * 8 + 2 * lane.quarter + i % 2;
        state.sum[i] = own.of_warp[0][m] + own.of_warp[1][m] + own.of_warp[2][m] + own.of_warp[3][m];
    }
}

// Leaves the group's partial result in `state`, or nothing where the block has no work.
inline void consume(KernelArgs const& args, RingPlace const& ring, Shared& shared, ConsumerShared& own, u32 warp, Lane lane,
                    ConsumerState& state) {
    u32 const group = warp / 4, in_group = warp % 4, barrier = 1 + group, in_warp = lane.eighth * 4 + lane.quarter;
    u32 const query = ring.items - operand_bytes(ring.nb_groups), weights = ring.items - (ring.nb_groups - group) * kScratchBytes;
    GroupShared& statistics = own.group[group];
    wait_phase(shared_address(&shared.work_ready), 0);
    Work const& work = shared.work;  // read anew in each step: the loop needs the registers
    if (!has_work(work)) return;
    store_query(args, work, query, 4 * ring.nb_groups, warp, in_warp, [&](u32 m, float factor) {
        for (u32 g = 0; g < ring.nb_groups; ++g) {
            own.group[g].affine[m] = Affine{softened_factor(factor), 0.0f};
            own.group[g].limit[m] = negative_infinity();
            if (Config::kHasSoftcap) own.group[g].factor[m] = factor;
        }
    });
    share_query(shared);
    clear(state);
    wait_phase(shared_address(&shared.query_ready), 0);
    Tiles const tiles = tiles_of(work.share);
    bool const tells = in_warp == 0;
    RingTurn turn;
    for (u32 tile = tiles.begin + group; tile < tiles.end; tile += ring.nb_groups) {
        u32 const first = tile * Config::kTile;
        WideTile s;
        u32 index = ring.index(group, turn.item), item = ring.item_at(index);
        wait_phase(ring.full_at(index), turn.parity);
        multiply_keys(item, ring.empty_at(index), query, in_group, lane, tells, s);
        turn.next(ring);
        if constexpr (Config::kHasSoftcap) cap_scores(args, statistics, lane, s);
        mask_scores(args, work, first, in_group, lane, s);
        soften(statistics, barrier, in_group, lane, s, weights, state);
        order_before_copies();
        index = ring.index(group, turn.item), item = ring.item_at(index);
        wait_phase(ring.full_at(index), turn.parity);
        clear_outside(item, first, work.share, barrier, in_group * 32 + in_warp);
        multiply_values(item, ring.empty_at(index), weights, barrier, in_group, lane, tells, state.acc);
        turn.next(ring);
    }
    let_next_grids_start();
    add_sums(statistics, barrier, in_group, lane, state);
}

// This group's partial result, where finish() takes it up.
inline void store_state(ConsumerState const& state, ConsumerShared const& shared, float* partials, u32 warp, Lane lane) {
    GroupShared const& own = shared.group[warp / 4];
    float* const partial = partials + warp / 4 * kPartialFloats;
#pragma unroll
    for (u32 i = 0; i < kColumns / 4; ++i) {
        u32 const m = i / 2 * 8 + 2 * lane.quarter + i % 2;
        if (warp % 4 == 0 && lane.eighth == 0) {
            float const max = own.limit[m] == negative_infinity() ? negative_infinity() : own.affine[m].base;
            *reinterpret_cast<Pair*>(stats_of(partial, m)) = Pair{max, state.sum[i]};
        }
#pragma unroll
        for (u32 t = 0; t < Config::kValueTiles; ++t) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                u32 const element = value_element(t, half, warp % 4, lane);
                if (element < Config::kHeadDimV)
                    partial[4 * place_of_quad(m, element / 4) + element % 4] = state.acc[t][i / 2 * 4 + i % 2 + 2 * half];
            }
        }
    }
}

}  // namespace xqajit::device
