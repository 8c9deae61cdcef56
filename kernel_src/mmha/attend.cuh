// One warp's pass over its steps: scores, online softmax, weighted sum of V. Shared memory only for its result.
#pragma once

#include "common/merge.cuh"
#include "mmha/kv.cuh"

namespace xqajit::device {

// What a warp carries from step to step, in registers. m is the same in all lanes; sum and acc are this lane's share.
struct WarpState {
    float max[Config::kMTile];  // log2 units
    float sum[Config::kMTile];
    float acc[Config::kMTile][Config::kLaneElemsV];
};

struct Query {
    float value[Config::kMTile][Config::kLaneElemsK];  // scaled, so that q . k is the score (in log2 units without a soft cap)
};

// Rows past nb_rows are zeros.
inline Query load_query(KernelArgs const& args, Work const& work, u32 sub, float scale) {
    constexpr u32 kLoads = Config::kVecElems / 8;  // 16-byte loads of q for one KV vector
    Query query;
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        u32 const row = work.first_row + m;
        i64 const token = (work.q_row + row / Config::kGroupSize) * Config::kBeamWidth + work.beam;
        i64 const head = work.kv_head * Config::kGroupSize + row % Config::kGroupSize;
        u16 const* const base = static_cast<u16 const*>(args.q) + token * args.q_stride_row + head * args.q_stride_head;
#pragma unroll
        for (u32 j = 0; j < Config::kLaneVecsK; ++j) {
            u32 const element = (j * Config::kLanes + sub) * Config::kVecElems;
#pragma unroll
            for (u32 part = 0; part < kLoads; ++part) {
                Vec16 vec{{0, 0, 0, 0}};
                if (m < work.nb_rows && element < Config::kHeadDim) vec = load_cached(base + element + part * 8);
                Unpacked<Config::kQType> const values = unpack<Config::kQType>(vec);
#pragma unroll
                for (u32 e = 0; e < 8; ++e) query.value[m][j * Config::kVecElems + part * 8 + e] = values.value[e] * scale;
            }
        }
    }
    return query;
}

// Sums a value a token over the token's lanes. Each lane ends with kScores finished sums, which kCopies lanes share: lane `sub`
// holds those of tokens first_token(sub) ... + kScores - 1. log2 exchanges halve the values instead of reducing each one in all
// lanes.
struct ScoreLayout {
    static constexpr u32 kScores = max_of(1, Config::kUnroll / Config::kLanes);
    static constexpr u32 kCopies = max_of(1, Config::kLanes / Config::kUnroll);
    static u32 first_token(u32 sub) { return sub / kCopies * kScores; }
    static u32 lane_of(u32 u) { return u / kScores * kCopies; }  // relative to the token's first lane
};

template <u32 kCount, u32 kLaneBit> inline void reduce_to_lanes(float (&value)[Config::kUnroll], u32 sub) {
    if constexpr (kLaneBit != 0) {
        if constexpr (kCount > 1) {
            constexpr u32 kHalf = kCount / 2;
            bool const upper = (sub & kLaneBit) != 0;
#pragma unroll
            for (u32 i = 0; i < kHalf; ++i) {
                float const keep = upper ? value[i + kHalf] : value[i];
                float const send = upper ? value[i] : value[i + kHalf];
                value[i] = keep + shuffle_xor(send, kLaneBit);
            }
            reduce_to_lanes<kHalf, kLaneBit / 2>(value, sub);
        } else {
            value[0] += shuffle_xor(value[0], kLaneBit);
            reduce_to_lanes<1, kLaneBit / 2>(value, sub);
        }
    }
}

// Scores of one row of the block in log2 units; -inf where the row does not see the token. Result: ScoreLayout.
inline void scores_of_row(KernelArgs const& args, Work const& work, Step const& step, float cap_log2, u32 m, u32 sub,
                          float (&score)[Config::kUnroll]) {
    reduce_to_lanes<Config::kUnroll, Config::kLanes / 2>(score, sub);
    u32 const first = ScoreLayout::first_token(sub);
#pragma unroll
    for (u32 i = 0; i < ScoreLayout::kScores; ++i) {
        u32 const u = first + i;
        if constexpr (Config::kHasSoftcap) score[i] = cap_log2 * tanh_accurate(score[i]);
        bool visible = (step.valid >> u & 1u) != 0;
        if constexpr (Config::kSpecDec != SpecDec::kNone) {
            visible = visible && m < work.nb_rows && row_sees(args, work, m, step.first + u * Config::kTokensAtOnce);
        }
        if (!visible) score[i] = negative_infinity();
    }
}

inline float max_over_warp(float value) {
#pragma unroll
    for (u32 mask = 16; mask >= 1; mask /= 2) {
        bool const copies = mask < Config::kLanes && mask < ScoreLayout::kCopies;  // lanes that hold the same score
        if (!copies) value = fmaxf(value, shuffle_xor(value, mask));
    }
    return value;
}

// One step: `k` and `v` hold its rows.
inline void attend_step(KernelArgs const& args, Work const& work, Query const& query, Step const& step, float cap_log2,
                        Rows<Config::kLaneVecsK> const& k, Rows<Config::kLaneVecsV> const& v, u32 sub, u32 first_lane,
                        WarpState& state) {
    float score[Config::kMTile][Config::kUnroll];
#pragma unroll
    for (u32 u = 0; u < Config::kUnroll; ++u) {
#pragma unroll
        for (u32 m = 0; m < Config::kMTile; ++m) score[m][u] = 0.0f;
#pragma unroll
        for (u32 j = 0; j < Config::kLaneVecsK; ++j) {
            Unpacked<Config::kKvType> const row = unpack<Config::kKvType>(k.vec[u][j]);
#pragma unroll
            for (u32 m = 0; m < Config::kMTile; ++m) {
#pragma unroll
                for (u32 e = 0; e < Config::kVecElems; ++e)
                    score[m][u] = fmaf(query.value[m][j * Config::kVecElems + e], row.value[e], score[m][u]);
            }
        }
    }

    float weight[Config::kMTile][ScoreLayout::kScores];
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        scores_of_row(args, work, step, cap_log2, m, sub, score[m]);
        float step_max = score[m][0];
#pragma unroll
        for (u32 i = 1; i < ScoreLayout::kScores; ++i) step_max = fmaxf(step_max, score[m][i]);
        float const new_max = fmaxf(state.max[m], max_over_warp(step_max));
        if (new_max > state.max[m]) {  // the same in all lanes
            float const rescale = exp2_approx(state.max[m] - new_max);
            state.max[m] = new_max;
            state.sum[m] *= rescale;
#pragma unroll
            for (u32 e = 0; e < Config::kLaneElemsV; ++e) state.acc[m][e] *= rescale;
        }
        float const base = base_of(new_max);
#pragma unroll
        for (u32 i = 0; i < ScoreLayout::kScores; ++i) {
            weight[m][i] = exp2_approx(score[m][i] - base);
            state.sum[m] += weight[m][i];
        }
    }

#pragma unroll
    for (u32 u = 0; u < Config::kUnroll; ++u) {
        float p[Config::kMTile];
#pragma unroll
        for (u32 m = 0; m < Config::kMTile; ++m)
            p[m] = shuffle(weight[m][u % ScoreLayout::kScores], first_lane + ScoreLayout::lane_of(u));
#pragma unroll
        for (u32 j = 0; j < Config::kLaneVecsV; ++j) {
            Unpacked<Config::kKvType> const row = unpack<Config::kKvType>(v.vec[u][j]);
#pragma unroll
            for (u32 m = 0; m < Config::kMTile; ++m) {
                // A draft row may not see a token whose V is NaN or Inf, and 0 x NaN is NaN. A plain decode loads no such token.
                if (Config::kSpecDec != SpecDec::kNone && p[m] == 0.0f) continue;
#pragma unroll
                for (u32 e = 0; e < Config::kVecElems; ++e) {
                    float& acc = state.acc[m][j * Config::kVecElems + e];
                    acc = fmaf(p[m], row.value[e], acc);
                }
            }
        }
    }
}

// The warp takes every kWarps-th step of the block's share, aligned to kTileTokens from token 0.
inline WarpState attend(KernelArgs const& args, Work const& work, u32 warp, u32 lane) {
    u32 const sub = lane % Config::kLanes;
    u32 const token_lane = lane / Config::kLanes;
    float const k_scale = args.k_scale_ptr != nullptr ? *args.k_scale_ptr : args.k_scale;
    float const cap_log2 = args.softcap * kLog2E;
    Query const query = load_query(args, work, sub, args.qk_scale * k_scale * (Config::kHasSoftcap ? 1.0f / args.softcap : kLog2E));

    WarpState state;
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        state.max[m] = negative_infinity();
        state.sum[m] = 0.0f;
#pragma unroll
        for (u32 e = 0; e < Config::kLaneElemsV; ++e) state.acc[m][e] = 0.0f;
    }
    if (work.share.begin >= work.share.end) return state;

    bool const own_v_table = !Config::kMla && args.v.page_table != args.k.page_table;
    u32 const last_tile = (work.share.end - 1) / Config::kTileTokens;
    u32 tile = work.share.begin / Config::kTileTokens + warp;
    Step step = make_step(work.share, tile, token_lane);
    Pages k_pages = load_pages(args, work, args.k.page_table, step);
    Pages v_pages = own_v_table ? load_pages(args, work, args.v.page_table, step) : k_pages;
    while (tile <= last_tile) {
        Rows<Config::kLaneVecsK> const k = load_rows<Config::kVecsK, Config::kLaneVecsK>(args.k, work.kv_head, k_pages, step, sub);
        Rows<Config::kLaneVecsV> v;
        if constexpr (Config::kMla) {  // V is the first part of the K row, in the same lanes
#pragma unroll
            for (u32 u = 0; u < Config::kUnroll; ++u) {
#pragma unroll
                for (u32 j = 0; j < Config::kLaneVecsV; ++j) v.vec[u][j] = k.vec[u][j];
            }
        } else {
            v = load_rows<Config::kVecsV, Config::kLaneVecsV>(args.v, work.kv_head, v_pages, step, sub);
        }
        // The next step's page indices travel while this step computes.
        Step const now = step;
        tile += Config::kWarps;
        step = make_step(work.share, tile, token_lane);
        k_pages = load_pages(args, work, args.k.page_table, step);
        v_pages = own_v_table ? load_pages(args, work, args.v.page_table, step) : k_pages;
        attend_step(args, work, query, now, cap_log2, k, v, sub, lane - sub, state);
    }

    // Sums over lanes; the tokens that other lane groups saw.
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
#pragma unroll
        for (u32 mask = 16; mask >= 1; mask /= 2) {
            bool const copies = mask < Config::kLanes && mask < ScoreLayout::kCopies;
            if (!copies) state.sum[m] += shuffle_xor(state.sum[m], mask);
            if (mask >= Config::kLanes) {
#pragma unroll
                for (u32 e = 0; e < Config::kLaneElemsV; ++e) state.acc[m][e] += shuffle_xor(state.acc[m][e], mask);
            }
        }
    }
    return state;
}

// This warp's partial result, where finish() takes it up.
inline void store_state(WarpState const& state, float* partial, u32 lane) {
    u32 const sub = lane % Config::kLanes;
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        if (lane == 0) *reinterpret_cast<Pair*>(stats_of(partial, m)) = Pair{state.max[m], state.sum[m]};
        if (lane >= Config::kLanes) continue;
#pragma unroll
        for (u32 j = 0; j < Config::kLaneVecsV; ++j) {
            u32 const element = (j * Config::kLanes + sub) * Config::kVecElems;
            if (element >= Config::kHeadDimV) continue;
#pragma unroll
            for (u32 q = 0; q < Config::kVecElems / 4; ++q) {
                float const* const acc = &state.acc[m][j * Config::kVecElems + 4 * q];
                reinterpret_cast<Quad*>(partial)[place_of_quad(m, element / 4 + q)] = Quad{{acc[0], acc[1], acc[2], acc[3]}};
            }
        }
    }
}

}  // namespace xqajit::device
