// attend() for more than 16 query rows: a team of warps shares each step's K and V, so that they are read once for all rows. Warp w
// has rows w * kWarpRows .. of S = Q K^T and O += P V.
#pragma once

#include "hmma/team_kv.cuh"

#include "common/query.cuh"

namespace xqajit::device {

constexpr u32 kWarpRows = Config::kShape.warp_rows, kWarpTiles = kWarpRows / 16;
// Tokens that a warp takes at once: with 32 rows of a head of more than 96, or 16 of more than 192, scores of more would leave no
// registers. 8-bit drafts on sm_90 keep enough.
constexpr bool kHasSpare = Config::k8Bit && Config::kSpecDec != SpecDec::kNone && __CUDA_ARCH__ == 900;
constexpr bool kIsTight = Config::kShape.warp_rows * Config::kHeadDim > 32 * 96 && !kHasSpare;
constexpr u32 kAtOnce = kIsTight ? 16 : Config::kTileTokens;
constexpr u32 kTokenTiles8 = kAtOnce / 8;
constexpr u32 kOutputTiles = Config::kHeadDimV / 8;
constexpr u32 kStages = Config::kShape.stages;
constexpr u32 kQueryTileBytes = Config::kChunksK * Config::kStepsK * 512;  // of 16 rows

// q as first operands.
struct TeamQuery {
    Vec16 a[Config::kMTile / 16][Config::kChunksK][Config::kStepsK][32];  // [16 rows][chunk][mma step][lane]: a0, a1, a2, a3
    float factor[Config::kMTile];                                         // see to_operands()
};

// Rows 8 n .. of the block, by one warp.
inline void store_team_query(KernelArgs const& args, Work const& work, u32 n, Lane lane, TeamQuery& query) {
    QueryRows rows = load_query(args, work, n, lane);
    float const factor = to_operands(args, rows);
#pragma unroll
    for (u32 c = 0; c < Config::kChunksK; ++c) {
#pragma unroll
        for (u32 step = 0; step < Config::kStepsK; ++step) {
            Vec16& a = query.a[n / 2][c][step][lane.eighth * 4 + lane.quarter];
            a.word[n % 2] = rows.part[c][step / 2].word[step % 2 * 2];
            a.word[n % 2 + 2] = rows.part[c][step / 2].word[step % 2 * 2 + 1];
        }
    }
    if (lane.quarter == 0) query.factor[n * 8 + lane.eighth] = factor;
}

struct TeamState {
    float max[kWarpTiles][2];  // [16 rows] rows lane/4 and lane/4 + 8; log2 units
    float sum[kWarpTiles][2];  // this lane's share
    Tile acc[kWarpTiles][kOutputTiles];
};

struct TeamScores {
    Tile tile[kWarpTiles][kTokenTiles8];  // [16 rows][8 tokens]
};

// `query`: shared address of this lane's vectors of the warp's rows; `keys`: of the tokens' rows.
inline TeamScores multiply_keys(u32 query, u32 keys, Lane lane) {
    TeamScores scores;
#pragma unroll
    for (u32 r = 0; r < kWarpTiles; ++r) {
#pragma unroll
        for (u32 n = 0; n < kTokenTiles8; ++n) scores.tile[r][n] = Tile{{0.0f, 0.0f, 0.0f, 0.0f}};
    }
#pragma unroll
    for (u32 c = 0; c < Config::kChunksK; ++c) {
        Vec16 row[kTokenTiles8];
#pragma unroll
        for (u32 n = 0; n < kTokenTiles8; ++n) row[n] = key_fragment(keys, lane, n * 8, c);
#pragma unroll
        for (u32 step = 0; step < Config::kStepsK; ++step) {
            Vec16 a[kWarpTiles];
#pragma unroll
            for (u32 r = 0; r < kWarpTiles; ++r)
                a[r] = load_shared(query + r * kQueryTileBytes + (c * Config::kStepsK + step) * 512);
#pragma unroll
            for (u32 n = 0; n < kTokenTiles8; ++n) {
                u32 b[2];
                if constexpr (Config::k8Bit) {
                    HalfPairs const wide = widen(row[n].word[step]);
                    b[0] = wide.low, b[1] = wide.high;
                } else {
                    b[0] = row[n].word[2 * step], b[1] = row[n].word[2 * step + 1];
                }
#pragma unroll
                for (u32 r = 0; r < kWarpTiles; ++r)
                    mma(scores.tile[r][n], a[r].word[0], a[r].word[1], a[r].word[2], a[r].word[3], b[0], b[1]);
            }
        }
    }
    return scores;
}

// Bends the scores where there is a soft cap, and hides what a row does not see. `first`: of the tokens; `first_row`: of the warp.
inline void mask(KernelArgs const& args, Work const& work, float const* factor, u32 first, u32 first_row, Lane lane,
                 TeamScores& scores) {
    if constexpr (Config::kHasSoftcap) {
#pragma unroll
        for (u32 r = 0; r < kWarpTiles; ++r) {
#pragma unroll
            for (u32 n = 0; n < kTokenTiles8; ++n) {
#pragma unroll
                for (u32 i = 0; i < 4; ++i) {
                    float& score = scores.tile[r][n].value[i];
                    score = args.softcap * kLog2E * tanh_accurate(score * factor[r * 16 + i / 2 * 8 + lane.eighth]);
                }
            }
        }
    }
    if (first >= max_of(work.share.begin, work.common.begin) && first + kAtOnce <= min_of(work.share.end, work.common.end)) return;
    // One bit a score: found in a loop, which takes few registers, and applied without one, as the scores are registers.
    constexpr u32 kScores = kWarpTiles * kTokenTiles8 * 4;
    u32 hidden = 0;
#pragma unroll 4
    for (u32 e = 0; e < kScores; ++e) {
        u32 const t = first + e / 4 % kTokenTiles8 * 8 + 2 * lane.quarter + e % 2;
        u32 const m = first_row + e / (4 * kTokenTiles8) * 16 + e / 2 % 2 * 8 + lane.eighth;
        bool const sees =
            inside(work.share, t) && (Config::kSpecDec == SpecDec::kNone || (m < work.nb_rows && row_sees(args, work, m, t)));
        hidden |= (sees ? 0u : 1u) << e;
    }
#pragma unroll
    for (u32 e = 0; e < kScores; ++e) {
        if (hidden >> e & 1u) scores.tile[e / (4 * kTokenTiles8)][e / 4 % kTokenTiles8].value[e % 4] = negative_infinity();
    }
}

// Raises the maxima of 16 rows to `max`, this lane's own candidates, and what was summed so far with them.
inline void raise_max(float (&max)[2], u32 r, TeamState& state) {
#pragma unroll
    for (u32 side = 0; side < 2; ++side) {
        max[side] = fmaxf(max[side], shuffle_xor(max[side], 1));
        max[side] = fmaxf(max[side], shuffle_xor(max[side], 2));
        max[side] = fmaxf(max[side], state.max[r][side]);
        float const rescale = max[side] == negative_infinity() ? 1.0f : exp2_approx(state.max[r][side] - max[side]);
        state.max[r][side] = max[side];
        state.sum[r][side] *= rescale;
#pragma unroll
        for (u32 j = 0; j < kOutputTiles; ++j) {
            state.acc[r][j].value[2 * side] *= rescale;
            state.acc[r][j].value[2 * side + 1] *= rescale;
        }
    }
}

// Online softmax of the tokens at once; scores become weights.
inline void soften(float const* factor, Lane lane, TeamScores& scores, TeamState& state) {
#pragma unroll
    for (u32 r = 0; r < kWarpTiles; ++r) {
        float max[2] = {negative_infinity(), negative_infinity()};
#pragma unroll
        for (u32 n = 0; n < kTokenTiles8; ++n) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) max[i / 2] = fmaxf(max[i / 2], scores.tile[r][n].value[i]);
        }
        float const scale[2] = {softened_factor(factor[r * 16 + lane.eighth]), softened_factor(factor[r * 16 + 8 + lane.eighth])};
        max[0] *= scale[0], max[1] *= scale[1];
        if (__any_sync(0xffffffffu, max[0] > state.max[r][0] + kMaxLag || max[1] > state.max[r][1] + kMaxLag))
            raise_max(max, r, state);
        float const base[2] = {base_of(state.max[r][0]), base_of(state.max[r][1])};
#pragma unroll
        for (u32 n = 0; n < kTokenTiles8; ++n) {
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                float& weight = scores.tile[r][n].value[i];
                weight = exp2_approx(fmaf(weight, scale[i / 2], -base[i / 2]));
                state.sum[r][i / 2] += weight;
            }
        }
    }
}

// The accumulators of S are, packed, the first operands of P V. `values`: shared address of the tokens' rows.
inline void multiply_values(TeamScores const& weights, u32 values, TeamState& state) {
#pragma unroll
    for (u32 two = 0; two < kTokenTiles8 / 2; ++two) {
        u32 a[kWarpTiles][4];
#pragma unroll
        for (u32 r = 0; r < kWarpTiles; ++r) {
            Tile const &low = weights.tile[r][2 * two], &high = weights.tile[r][2 * two + 1];
            a[r][0] = pack_operands(low.value[0], low.value[1]), a[r][1] = pack_operands(low.value[2], low.value[3]);
            a[r][2] = pack_operands(high.value[0], high.value[1]), a[r][3] = pack_operands(high.value[2], high.value[3]);
        }
#pragma unroll
        for (u32 j = 0; j < kOutputTiles; j += kTilesOfTwo) {
            ValueOperands const v = value_operands(values + two * 16 * kValueStride, j / kTilesOfTwo * 2);
#pragma unroll
            for (u32 i = 0; i < kTilesOfTwo; ++i) {
                if (j + i >= kOutputTiles) continue;
#pragma unroll
                for (u32 r = 0; r < kWarpTiles; ++r)
                    mma(state.acc[r][j + i], a[r][0], a[r][1], a[r][2], a[r][3], v.b[i][0], v.b[i][1]);
            }
        }
    }
}

// The warp's rows of the team's partial result, where finish() takes it up.
inline void store_state(TeamState& state, u32 first_row, float* partial, Lane lane) {
#pragma unroll
    for (u32 r = 0; r < kWarpTiles; ++r) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
            float& sum = state.sum[r][side];
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            u32 const m = first_row + r * 16 + side * 8 + lane.eighth;
            if (lane.quarter == 0) *reinterpret_cast<Pair*>(stats_of(partial, m)) = Pair{state.max[r][side], sum};
            Quad* const quads = reinterpret_cast<Quad*>(partial);
#pragma unroll
            for (u32 j = 0; j < kOutputTiles; j += 2) {
                Tile const &even = state.acc[r][j], &odd = state.acc[r][j + 1];
                if constexpr (Config::k8Bit) {
                    quads[place_of_quad(m, 2 * j + lane.quarter)] =
                        Quad{{even.value[2 * side], odd.value[2 * side], even.value[2 * side + 1], odd.value[2 * side + 1]}};
                } else {
                    // Half a quad each: two lanes fill one.
                    u32 const column = 2 * j + lane.quarter / 2, half = lane.quarter % 2;
                    reinterpret_cast<Pair*>(quads + place_of_quad(m, column))[half] =
                        Pair{even.value[2 * side], even.value[2 * side + 1]};
                    reinterpret_cast<Pair*>(quads + place_of_quad(m, column + 2))[half] =
                        Pair{odd.value[2 * side], odd.value[2 * side + 1]};
                }
            }
        }
    }
}

// Team `index` takes every nb_teams-th step of the block's share, aligned to kTileTokens from token 0. The ring holds kStages steps:
// one is being used while the next kStages - 1 are on their way.
inline void attend(KernelArgs const& args, Work const& work, u32 index, u32 nb_teams, Lane lane, u8* memory) {
    u32 const ring = shared_address(memory + index * Config::kShape.team_smem);
    __shared__ TeamQuery query;
    u32 const first_row = threadIdx.x / 32 % Config::kTeamWarps * kWarpRows;
    u32 const stride = nb_teams * Config::kTileTokens;
    u32 const start = work.share.begin / Config::kTileTokens * Config::kTileTokens;
    u32 first = start + index * Config::kTileTokens;
    u32 const end = work.share.begin < work.share.end ? work.share.end : 0;  // no step of an empty share
    StepPages pages{};                                                       // of the next step to copy
    if (first < end) pages = load_step_pages(args, work, first);
    // A group of copies a step, also past the last one, so that the number of groups under way tells which have come.
    auto const copy_next = [&](u32 coming, u32 stage) {
        if (coming < end) {
            copy_step(args, work, pages, coming, ring + stage * kTileBytes);
            pages = load_step_pages(args, work, coming + stride);
        }
        commit_copies();
    };
#pragma unroll 1
    for (u32 stage = 0; stage + 1 < kStages; ++stage) copy_next(first + stage * stride, stage);
#pragma unroll 1
    for (u32 n = threadIdx.x / 32; n < Config::kRowTiles; n += blockDim.x / 32) store_team_query(args, work, n, lane, query);
    __syncthreads();

    TeamState state;
#pragma unroll
    for (u32 r = 0; r < kWarpTiles; ++r) {
#pragma unroll
        for (u32 side = 0; side < 2; ++side) {
            state.max[r][side] = negative_infinity();
            state.sum[r][side] = 0.0f;
        }
#pragma unroll
        for (u32 j = 0; j < kOutputTiles; ++j) state.acc[r][j] = Tile{{0.0f, 0.0f, 0.0f, 0.0f}};
    }
    u32 const query_address = shared_address(&query.a[first_row / 16][0][0][lane.eighth * 4 + lane.quarter]);
    bool const has_rows = first_row < work.nb_rows;
    u32 stage = 0;
#pragma unroll 1
    for (u32 round = start; round < end; round += stride) {  // the same number of barriers for every team
        wait_copies<kStages - 2>();
        sync_some(1 + index, kTeamLanes);  // the step has come for all lanes; all are done with the one before
        copy_next(first + (kStages - 1) * stride, stage == 0 ? kStages - 1 : stage - 1);
        if (has_rows && first < end) {
            u32 const tile = ring + stage * kTileBytes;
#pragma unroll 1
            for (u32 t = 0; t < Config::kTileTokens; t += kAtOnce) {
                TeamScores scores = multiply_keys(query_address, tile + t * kKeyStride, lane);
                mask(args, work, query.factor + first_row, first + t, first_row, lane, scores);
                soften(query.factor + first_row, lane, scores, state);
                multiply_values(scores, tile + kValuesAt + t * kValueStride, state);
            }
        }
        stage = stage + 1 == kStages ? 0 : stage + 1;
        first += stride;
    }
    __syncthreads();  // the partial results lie where the rings were
    store_state(state, first_row, reinterpret_cast<float*>(memory) + index * kPartialFloats, lane);
}

}  // namespace xqajit::device
