// From the warps' states to the output: over the warps of a block, then over the blocks of a request. Fixed order, so the same bits
// every time.
#pragma once

#include "mmha/attend.cuh"

namespace xqajit::device {

constexpr u32 kMergeChunk = 64;  // partials whose weights are in shared memory at once

// Lifetimes: warp_* live from the end of the token loop to the block's result; chunk_* and after only in the block that merges.
struct SharedMem {
    float warp_max[Config::kWarps][Config::kMTile];
    float warp_sum[Config::kWarps][Config::kMTile];
    float warp_acc[Config::kWarps][Config::kMTile][Config::kHeadDimV];
    float chunk_weight[kMergeChunk][Config::kMTile];
    float merged_max[Config::kMTile];
    float merged_sum[Config::kMTile];
    u32 arrivals_before;
};
static_assert(sizeof(SharedMem) <= 48 * 1024, "static shared memory ends at 48 KB");

// The pairs of output elements of thread `tid`: pair p covers row p / (kHeadDimV / 2), elements 2 * (p % (kHeadDimV / 2)) and the next.
constexpr u32 kPairs = Config::kMTile * Config::kHeadDimV / 2;
constexpr u32 kThreadPairs = (kPairs + Config::kThreads - 1) / Config::kThreads;

struct BlockResult {  // unnormalised
    float max[Config::kMTile];
    float sum[Config::kMTile];
    Pair acc[kThreadPairs];
};

inline float weight_of(float max, float merged_max) {
    return merged_max == negative_infinity() ? 0.0f : exp2_approx(max - merged_max);
}

inline BlockResult merge_warps(WarpState const& state, SharedMem& smem, u32 warp, u32 lane) {
    u32 const sub = lane % Config::kLanes;
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        if (lane == 0) {
            smem.warp_max[warp][m] = state.max[m];
            smem.warp_sum[warp][m] = state.sum[m];
        }
        if (lane >= Config::kLanes) continue;
#pragma unroll
        for (u32 j = 0; j < Config::kLaneVecsV; ++j) {
            u32 const element = (j * Config::kLanes + sub) * Config::kVecElems;
            if (element >= Config::kHeadDimV) continue;
#pragma unroll
            for (u32 e = 0; e < Config::kVecElems; ++e)
                smem.warp_acc[warp][m][element + e] = state.acc[m][j * Config::kVecElems + e];
        }
    }
    __syncthreads();

    BlockResult result;
    float weight[Config::kWarps][Config::kMTile];
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        result.max[m] = smem.warp_max[0][m];
#pragma unroll
        for (u32 w = 1; w < Config::kWarps; ++w) result.max[m] = fmaxf(result.max[m], smem.warp_max[w][m]);
        result.sum[m] = 0.0f;
#pragma unroll
        for (u32 w = 0; w < Config::kWarps; ++w) {
            weight[w][m] = weight_of(smem.warp_max[w][m], result.max[m]);
            result.sum[m] = fmaf(weight[w][m], smem.warp_sum[w][m], result.sum[m]);
        }
    }
#pragma unroll
    for (u32 i = 0; i < kThreadPairs; ++i) {
        u32 const pair = threadIdx.x + i * Config::kThreads;
        u32 const row = pair / (Config::kHeadDimV / 2);
        u32 const element = pair % (Config::kHeadDimV / 2) * 2;
        result.acc[i] = {0.0f, 0.0f};
        if (pair >= kPairs) continue;
#pragma unroll
        for (u32 w = 0; w < Config::kWarps; ++w) {
            float const* const acc = &smem.warp_acc[w][row][element];
            float factor = weight[w][0];  // weight[w][row], without a run-time index into registers
#pragma unroll
            for (u32 m = 1; m < Config::kMTile; ++m) factor = row == m ? weight[w][m] : factor;
            result.acc[i].x = fmaf(factor, acc[0], result.acc[i].x);
            result.acc[i].y = fmaf(factor, acc[1], result.acc[i].y);
        }
    }
    return result;
}

// Normalises, joins the sink, scales, and writes out and lse.
inline void write_output(KernelArgs const& args, Work const& work, BlockResult const& result) {
    float const v_scale = args.v_scale_ptr != nullptr ? *args.v_scale_ptr : args.v_scale;
    float scale = v_scale;
    if constexpr (Config::kOutType == Type::kFp8E4m3)
        scale *= args.out_scale_rcp_ptr != nullptr ? *args.out_scale_rcp_ptr : args.out_scale_rcp;
    float factor[Config::kMTile];
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        u32 const row = work.first_row + m;
        u32 const head = work.kv_head * Config::kGroupSize + row % Config::kGroupSize;
        float max = result.max[m];
        float sum = result.sum[m];
        if constexpr (Config::kHasSinks) {
            if (m < work.nb_rows) {  // sinks holds exactly num_q_heads floats
                float const sink = args.sinks[head] * kLog2E;
                max = fmaxf(max, sink);
                sum = sum * weight_of(result.max[m], max) + weight_of(sink, max);
            }
        }
        bool const empty = sum == 0.0f;  // a NaN among the visible inputs stays one
        factor[m] = empty ? 0.0f : scale * weight_of(result.max[m], max) / sum;
        if constexpr (Config::kHasLse) {
            if (threadIdx.x == m && m < work.nb_rows) {
                i64 const token = (work.q_row + row / Config::kGroupSize) * Config::kBeamWidth + work.beam;
                args.lse[token * (args.num_kv_heads * Config::kGroupSize) + head] =
                    empty ? negative_infinity() : (max + log2_approx(sum)) * kLn2;
            }
        }
    }
#pragma unroll
    for (u32 i = 0; i < kThreadPairs; ++i) {
        u32 const pair = threadIdx.x + i * Config::kThreads;
        u32 const m = pair / (Config::kHeadDimV / 2);
        u32 const element = pair % (Config::kHeadDimV / 2) * 2;
        if (m >= work.nb_rows) continue;
        float row_factor = factor[0];
#pragma unroll
        for (u32 other = 1; other < Config::kMTile; ++other) row_factor = m == other ? factor[other] : row_factor;
        u32 const row = work.first_row + m;
        i64 const token = (work.q_row + row / Config::kGroupSize) * Config::kBeamWidth + work.beam;
        i64 const head = work.kv_head * Config::kGroupSize + row % Config::kGroupSize;
        bool const zero = row_factor == 0.0f;  // 0 x Inf is NaN
        store_pair<Config::kOutType>(args.out, token * args.out_stride_row + head * args.out_stride_head + element,
                                     zero ? 0.0f : result.acc[i].x * row_factor, zero ? 0.0f : result.acc[i].y * row_factor);
    }
}

inline float* partial_of(KernelArgs const& args, u32 unit, u32 sub_seq) {
    return args.partials + (static_cast<u64>(unit) * args.nb_sub_seq + sub_seq) * partial_floats(Config::kMTile, Config::kHeadDimV);
}

inline void write_partial(KernelArgs const& args, Work const& work, BlockResult const& result) {
    float* const partial = partial_of(args, work.unit, work.sub_seq);
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        if (threadIdx.x == m) {
            partial[m] = result.max[m];
            partial[Config::kMTile + m] = result.sum[m];
        }
    }
#pragma unroll
    for (u32 i = 0; i < kThreadPairs; ++i) {
        u32 const pair = threadIdx.x + i * Config::kThreads;
        if (pair < kPairs) *reinterpret_cast<Pair*>(partial + 2 * Config::kMTile + 2 * pair) = result.acc[i];
    }
}

// Only the block that arrives last merges: sub-sequences in ascending order, kMergeChunk weights at a time.
inline BlockResult merge_sub_seqs(KernelArgs const& args, Work const& work, SharedMem& smem, u32 warp, u32 lane) {
    constexpr u32 kStride = partial_floats(Config::kMTile, Config::kHeadDimV);
    float const* const partials = partial_of(args, work.unit, 0);
    for (u32 m = warp; m < Config::kMTile; m += Config::kWarps) {
        float max = negative_infinity();
        for (u32 s = lane; s < work.nb_active; s += 32) max = fmaxf(max, load_l2(partials + static_cast<u64>(s) * kStride + m));
#pragma unroll
        for (u32 mask = 16; mask >= 1; mask /= 2) max = fmaxf(max, shuffle_xor(max, mask));
        float sum = 0.0f;  // each lane its partials in ascending order, then a fixed tree over the lanes
        for (u32 s = lane; s < work.nb_active; s += 32) {
            float const* const partial = partials + static_cast<u64>(s) * kStride;
            sum = fmaf(weight_of(load_l2(partial + m), max), load_l2(partial + Config::kMTile + m), sum);
        }
#pragma unroll
        for (u32 mask = 16; mask >= 1; mask /= 2) sum += shuffle_xor(sum, mask);
        if (lane == 0) {
            smem.merged_max[m] = max;
            smem.merged_sum[m] = sum;
        }
    }
    __syncthreads();

    BlockResult result;
#pragma unroll
    for (u32 m = 0; m < Config::kMTile; ++m) {
        result.max[m] = smem.merged_max[m];
        result.sum[m] = smem.merged_sum[m];
    }
#pragma unroll
    for (u32 i = 0; i < kThreadPairs; ++i) result.acc[i] = {0.0f, 0.0f};
    for (u32 first = 0; first < work.nb_active; first += kMergeChunk) {
        u32 const count = min_of(kMergeChunk, work.nb_active - first);
        __syncthreads();  // the previous chunk's weights are read
        for (u32 x = threadIdx.x; x < count * Config::kMTile; x += Config::kThreads) {
            u32 const s = x / Config::kMTile, m = x % Config::kMTile;
            smem.chunk_weight[s][m] = weight_of(load_l2(partials + static_cast<u64>(first + s) * kStride + m), smem.merged_max[m]);
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < kThreadPairs; ++i) {
            u32 const pair = threadIdx.x + i * Config::kThreads;
            if (pair >= kPairs) continue;
            u32 const m = pair / (Config::kHeadDimV / 2);
            float const* const acc = partials + static_cast<u64>(first) * kStride + 2 * Config::kMTile + 2 * pair;
#pragma unroll 4
            for (u32 s = 0; s < count; ++s) {
                Pair const value = load_l2_pair(acc + static_cast<u64>(s) * kStride);
                result.acc[i].x = fmaf(smem.chunk_weight[s][m], value.x, result.acc[i].x);
                result.acc[i].y = fmaf(smem.chunk_weight[s][m], value.y, result.acc[i].y);
            }
        }
    }
    return result;
}

}  // namespace xqajit::device
