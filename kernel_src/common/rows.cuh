// Up to 16 query rows by one warp, kTileTokens tokens a step: S^T = K Q^T, online softmax by columns, O^T += V^T P^T. The family's Config
// says how K and V lie in the fragments, and brings them there.
#pragma once

#include "common/query.cuh"

namespace xqajit::device {

// What a warp carries from step to step. max is the same in the lanes of a column; sum is this lane's share.
struct WarpState {
    float max[Config::kRowTiles][2];  // log2 units
    float sum[Config::kRowTiles][2];
    Tile acc[Config::kRowTiles][Config::kChunksV * Config::kTilesV];
};

inline void clear(WarpState& state) {
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
            state.max[n][side] = negative_infinity();
            state.sum[n][side] = 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < Config::kChunksV * Config::kTilesV; ++i) state.acc[n][i] = Tile{{0.0f, 0.0f, 0.0f, 0.0f}};
    }
}

// See score_factor().
struct Factors {
    float row[Config::kRowTiles][2];
};

inline Factors load_factors(Query const& query, Lane lane) {
    Factors factors;
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) factors.row[n][side] = query.factor[n * 8 + 2 * lane.quarter + side];
    }
    return factors;
}

struct Scores {
    Tile tile[Config::kTokenTiles][Config::kRowTiles];
};

// `query`: shared address of this lane's vectors of Query::b.
inline Scores multiply_keys(KeyFragments const& keys, u32 query) {
    Scores scores;
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 n = 0; n < Config::kRowTiles; ++n) scores.tile[tile][n] = Tile{{0.0f, 0.0f, 0.0f, 0.0f}};
    }
#pragma unroll
    for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
        for (u32 two = 0; two < Config::kStepsK / 2; ++two) {
            Vec16 b[Config::kRowTiles];
#pragma unroll
            for (u32 n = 0; n < Config::kRowTiles; ++n)
                b[n] = load_shared(query + ((n * Config::kChunksK + c) * (Config::kStepsK / 2) + two) * 512);
#pragma unroll
            for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
                Vec16 const& low = keys.row[tile][0][c];   // tokens 0..7
                Vec16 const& high = keys.row[tile][1][c];  // tokens 8..15
#pragma unroll
                for (u32 step = 0; step < 2; ++step) {
                    u32 a[4];
                    if constexpr (Config::k8Bit) {
                        HalfPairs const wide_low = widen(low.word[2 * two + step]), wide_high = widen(high.word[2 * two + step]);
                        a[0] = wide_low.low, a[1] = wide_high.low, a[2] = wide_low.high, a[3] = wide_high.high;
                    } else {
                        a[0] = low.word[2 * step], a[1] = high.word[2 * step];
                        a[2] = low.word[2 * step + 1], a[3] = high.word[2 * step + 1];
                    }
#pragma unroll
                    for (u32 n = 0; n < Config::kRowTiles; ++n)
                        mma(scores.tile[tile][n], a[0], a[1], a[2], a[3], b[n].word[2 * step], b[n].word[2 * step + 1]);
                }
            }
        }
    }
    return scores;
}

// Raises the columns' maxima to `max`, this lane's own candidates, and what was summed so far with them.
inline void raise_max(float (&max)[2], u32 n, WarpState& state) {
#pragma unroll
    for (u32 side = 0; side < 2; ++side) {
#pragma unroll
        for (u32 mask = 4; mask <= 16; mask *= 2) max[side] = fmaxf(max[side], shuffle_xor(max[side], mask));
        max[side] = fmaxf(max[side], state.max[n][side]);
        float const rescale = max[side] == negative_infinity() ? 1.0f : exp2_approx(state.max[n][side] - max[side]);
        state.max[n][side] = max[side];
        state.sum[n][side] *= rescale;
#pragma unroll
        for (u32 i = 0; i < Config::kChunksV * Config::kTilesV; ++i) {
            state.acc[n][i].value[side] *= rescale;
            state.acc[n][i].value[side + 2] *= rescale;
        }
    }
}

// The operand P^T: [16 tokens][row tile][tokens 0..7 | 8..15].
struct Weights {
    u32 b[Config::kTokenTiles][Config::kRowTiles][2];
};

// Whether some row does not see some of the warp's tokens from `first` on.
inline bool has_hidden(Work const& work, u32 first) {
    u32 const last = first + Config::kTileTokens;
    return first < max_of(work.share.begin, work.common.begin) || last > min_of(work.share.end, work.common.end);
}

// Bends the scores of row tile n where there is a soft cap, and hides what a row does not see. Returns this lane's largest of each
// column, in log2 units.
inline Pair mask_scores(KernelArgs const& args, Work const& work, Factors const& factors, u32 first, bool hidden, u32 n, Lane lane,
                        Scores& scores) {
    float max[2] = {negative_infinity(), negative_infinity()};
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            u32 const side = i % 2;
            float score = scores.tile[tile][n].value[i];
            if constexpr (Config::kHasSoftcap) score = args.softcap * kLog2E * tanh_accurate(score * factors.row[n][side]);
            if (hidden) {
                u32 const t = first + tile * 16 + i / 2 * 8 + lane.eighth;
                u32 const m = n * 8 + 2 * lane.quarter + side;
                if (!inside(work.share, t) ||
                    (Config::kSpecDec != SpecDec::kNone && !(m < work.nb_rows && row_sees(args, work, m, t))))
                    score = negative_infinity();
            }
            scores.tile[tile][n].value[i] = score;
            max[side] = fmaxf(max[side], score);
        }
    }
    return {max[0] * softened_factor(factors.row[n][0]), max[1] * softened_factor(factors.row[n][1])};
}

// Lets the maxima of row tile n follow the warp's `largest`, this lane's of each column, where they are too far behind.
inline void follow_largest(Pair largest, u32 n, WarpState& state) {
    float max[2] = {largest.x, largest.y};
    if (__any_sync(0xffffffffu, max[0] > state.max[n][0] + kMaxLag || max[1] > state.max[n][1] + kMaxLag)) raise_max(max, n, state);
}

// The weights of row tile n, and their sums.
inline void weigh(Factors const& factors, Scores const& scores, u32 n, WarpState& state, Weights& weights) {
    float const scale[2] = {softened_factor(factors.row[n][0]), softened_factor(factors.row[n][1])};
    float const base[2] = {base_of(state.max[n][0]), base_of(state.max[n][1])};
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            float const left = exp2_approx(fmaf(scores.tile[tile][n].value[2 * half], scale[0], -base[0]));
            float const right = exp2_approx(fmaf(scores.tile[tile][n].value[2 * half + 1], scale[1], -base[1]));
            state.sum[n][0] += left;
            state.sum[n][1] += right;
            weights.b[tile][n][half] = transpose(pack_operands(left, right));
        }
    }
}

inline Weights soften(KernelArgs const& args, Work const& work, Factors const& factors, u32 first, Lane lane, Scores scores,
                      WarpState& state) {
    bool const hidden = has_hidden(work, first);
    Weights weights;
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
        Pair const largest = mask_scores(args, work, factors, first, hidden, n, lane, scores);
        follow_largest(largest, n, state);
        weigh(factors, scores, n, state, weights);
    }
    return weights;
}

// V^T: each word pairs two tokens of one element. Element 2 * i of a lane's vector is row lane/4 of tile i, the next one row
// lane/4 + 8.
inline void multiply_values(ValueFragments const& values, Weights const& weights, WarpState& state) {
#pragma unroll
    for (u32 tile = 0; tile < Config::kTokenTiles; ++tile) {
#pragma unroll
        for (u32 c = 0; c < Config::kChunksV; ++c) {
#pragma unroll
            for (u32 i = 0; i < Config::kTilesV; ++i) {
                u32 const w = Config::k8Bit ? i / 2 : i;
                u32 const t0 = values.row[tile][0][c].word[w], t1 = values.row[tile][1][c].word[w];
                u32 const t8 = values.row[tile][2][c].word[w], t9 = values.row[tile][3][c].word[w];
                u32 a[4];
                if constexpr (Config::k8Bit) {
                    u32 const selector = i % 2 == 0 ? 0x5140u : 0x7362u;
                    HalfPairs const low = widen(__byte_perm(t0, t1, selector)), high = widen(__byte_perm(t8, t9, selector));
                    a[0] = low.low, a[1] = low.high, a[2] = high.low, a[3] = high.high;
                } else {
                    a[0] = __byte_perm(t0, t1, 0x5410), a[1] = __byte_perm(t0, t1, 0x7632);
                    a[2] = __byte_perm(t8, t9, 0x5410), a[3] = __byte_perm(t8, t9, 0x7632);
                }
#pragma unroll
                for (u32 n = 0; n < Config::kRowTiles; ++n)
                    mma(state.acc[n][c * Config::kTilesV + i], a[0], a[1], a[2], a[3], weights.b[tile][n][0],
                        weights.b[tile][n][1]);
            }
        }
    }
}

// The lanes' shares of the sums into one, the same in the lanes of a column.
inline void add_shares(WarpState& state) {
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
#pragma unroll
            for (u32 mask = 4; mask <= 16; mask *= 2) state.sum[n][side] += shuffle_xor(state.sum[n][side], mask);
        }
    }
}

// This warp's partial result, where finish() takes it up.
inline void store_state(WarpState const& state, float* partial, Lane lane) {
#pragma unroll
    for (u32 n = 0; n < Config::kRowTiles; ++n) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
            u32 const m = n * 8 + 2 * lane.quarter + side;
            if (lane.eighth == 0) *reinterpret_cast<Pair*>(stats_of(partial, m)) = Pair{state.max[n][side], state.sum[n][side]};
#pragma unroll
            for (u32 c = 0; c < Config::kChunksV; ++c) {
                u32 const element = c * Config::kChunkV + lane.eighth * Config::kElemsV;
                if (element >= Config::kHeadDimV) continue;
#pragma unroll
                for (u32 i = 0; i < Config::kTilesV; i += 2) {
                    Tile const &low = state.acc[n][c * Config::kTilesV + i], &high = state.acc[n][c * Config::kTilesV + i + 1];
                    reinterpret_cast<Quad*>(partial)[place_of_quad(m, element / 4 + i / 2)] =
                        Quad{{low.value[side], low.value[side + 2], high.value[side], high.value[side + 2]}};
                }
            }
        }
    }
}

}  // namespace xqajit::device
