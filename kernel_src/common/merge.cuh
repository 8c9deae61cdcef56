// From the warps' partial results to the output: over the warps of a block in shared memory, over the blocks of a cluster in one
// another's, then over the parts of a unit in the workspace. Fixed order, so the same bits every time. All families end with finish().
#pragma once

#include "common/cluster.cuh"
#include "common/math.cuh"
#include "common/work.cuh"

namespace xqajit::device {

// A partial result, the same in shared memory and in the workspace (floats):
//   acc   [kMTile][kHeadDimV]  unnormalised sums of p * v; each row's quads rotated, see place_of_quad()
//   stats [kMTile]{max, sum}   max in log2 units
constexpr u32 kAccFloats = Instance::kMTile * Instance::kHeadDimV;
constexpr u32 kPartialFloats = partial_floats(Instance::kMTile, Instance::kHeadDimV);

// A thread merges and writes four neighbouring elements of a row at a time: quad x is elements 4 * (x % kRowQuads) ... of row x /
// kRowQuads.
constexpr u32 kRowQuads = Instance::kHeadDimV / 4;
constexpr u32 kQuads = Instance::kMTile * kRowQuads;

// Where row m has its quad `column`: a quad further in each row, so that lanes that store one column of neighbouring rows at once meet
// different banks. A merge goes over the places in order; only what fills them and what writes the output has to know.
inline u32 place_of_quad(u32 m, u32 column) { return m * kRowQuads + (column + m) % kRowQuads; }
inline u32 column_of_place(u32 m, u32 place) { return (place % kRowQuads + kRowQuads - m % kRowQuads) % kRowQuads; }

inline float* stats_of(float* partial, u32 m) { return partial + kAccFloats + 2 * m; }
inline float const* stats_of(float const* partial, u32 m) { return partial + kAccFloats + 2 * m; }

inline float weight_of(float max, float merged_max) {
    return merged_max == negative_infinity() ? 0.0f : exp2_approx(max - merged_max);
}

// The merge of the partials added so far, for one quad.
struct Merged {
    float max = negative_infinity();
    float sum = 0.0f;
    Quad acc{{0.0f, 0.0f, 0.0f, 0.0f}};

    // The first `count` of kCount partials; at once, so that one's exponential does not wait for another's.
    template <u32 kCount> void add(Pair const (&stats)[kCount], Quad const (&values)[kCount], u32 count) {
        float const old_max = max;
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) max = i < count ? fmaxf(max, stats[i].x) : max;
        float const old_weight = weight_of(old_max, max);
        sum *= old_weight;
#pragma unroll
        for (u32 e = 0; e < 4; ++e) acc.value[e] *= old_weight;
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
            if (i >= count) continue;
            float const weight = weight_of(stats[i].x, max);
            sum = fmaf(stats[i].y, weight, sum);
#pragma unroll
            for (u32 e = 0; e < 4; ++e) acc.value[e] = fmaf(values[i].value[e], weight, acc.value[e]);
        }
    }
};

// Quad `quad` of `count` partials, kMost at most, side by side in shared memory.
template <u32 kMost> inline Merged merge_shared(float const* partials, u32 count, u32 quad) {
    constexpr u32 kAtOnce = min_of(kMost, 8);
    Merged merged;
    for (u32 at = 0; at < count; at += kAtOnce) {
        Pair stats[kAtOnce];
        Quad values[kAtOnce];
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) {
            float const* const partial = partials + min_of(at + i, count - 1) * kPartialFloats;
            stats[i] = *reinterpret_cast<Pair const*>(stats_of(partial, quad / kRowQuads));
            values[i] = reinterpret_cast<Quad const*>(partial)[quad];
        }
        merged.add(stats, values, count - at);
    }
    return merged;
}

inline void store_partial(float* partial, u32 quad, Merged const& merged) {
    reinterpret_cast<Quad*>(partial)[quad] = merged.acc;
    if (quad % kRowQuads == 0) *reinterpret_cast<Pair*>(stats_of(partial, quad / kRowQuads)) = Pair{merged.max, merged.sum};
}

// Some of a unit's partials in the workspace: `count` of them, every `step`-th from `first` on.
struct PartialList {
    u32 first, count, step;
};

inline float* partial_of(KernelArgs const& args, Work const& work, u32 index) {
    return args.partials + static_cast<u64>(work.first_slot + index * slot_stride(args)) * kPartialFloats;
}

// Quad `quad` of run `run` of `runs` equal runs of the list, kAtOnce on their way at once.
template <u32 kAtOnce>
inline Merged merge_run(KernelArgs const& args, Work const& work, PartialList list, u32 runs, u32 run, u32 quad) {
    u32 const last = list.count * (run + 1) / runs;
    Merged merged;
    for (u32 at = list.count * run / runs; at < last; at += kAtOnce) {
        Pair stats[kAtOnce];
        Quad values[kAtOnce];
#pragma unroll
        for (u32 i = 0; i < kAtOnce; ++i) {
            float const* const partial = partial_of(args, work, list.first + min_of(at + i, last - 1) * list.step);
            stats[i] = load_l2_pair(stats_of(partial, quad / kRowQuads));
            values[i] = load_l2_quad(partial + 4 * quad);
        }
        merged.add(stats, values, last - at);
    }
    return merged;
}

// Quads of a partial: all, or what one block of a cluster has of them, which are whole rows.
struct QuadRange {
    u32 first, count;
};

// The list into runs in shared memory, up to `most_runs` where threads outnumber the quads; returns how many.
template <u32 kAtOnce> inline u32 merge_to_shared(KernelArgs const& args, Work const& work, PartialList list, QuadRange quads,
                                                  float* shared, u32 most_runs) {
    u32 const runs = max_of(1, min_of(min_of(blockDim.x / quads.count, most_runs), list.count));
    for (u32 x = threadIdx.x; x < quads.count * runs; x += blockDim.x) {
        u32 const run = x / quads.count, quad = quads.first + x - run * quads.count;
        store_partial(shared + run * kPartialFloats, quad, merge_run<kAtOnce>(args, work, list, runs, run, quad));
    }
    __syncthreads();
    return runs;
}

// Normalises, joins the sink, scales, and writes a quad of out and, once a row, lse.
inline void write_output(KernelArgs const& args, Work const& work, u32 quad, Merged const& merged) {
    u32 const m = quad / kRowQuads;
    if (m >= work.nb_rows) return;
    u32 const row = work.first_row + m;
    i64 const token = (work.q_row + row / Instance::kGroupSize) * Instance::kBeamWidth + work.beam;
    i64 const head = work.kv_head * Instance::kGroupSize + row % Instance::kGroupSize;
    float max = merged.max, sum = merged.sum;
    if constexpr (Instance::kHasSinks) {
        float const sink = args.sinks[head] * kLog2E;
        max = fmaxf(max, sink);
        sum = sum * weight_of(merged.max, max) + weight_of(sink, max);
    }
    float scale = args.v_scale_ptr != nullptr ? *args.v_scale_ptr : args.v_scale;
    if constexpr (Instance::kOutType == Type::kFp8E4m3)
        scale *= args.out_scale_rcp_ptr != nullptr ? *args.out_scale_rcp_ptr : args.out_scale_rcp;
    bool const empty = sum == 0.0f;  // a NaN among the visible inputs stays one
    float const factor = empty ? 0.0f : scale * weight_of(merged.max, max) / sum;
    Quad out{{0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        if (factor != 0.0f) out.value[e] = merged.acc.value[e] * factor;  // 0 x Inf is NaN
    }
    i64 const element = token * args.out_stride_row + head * args.out_stride_head + column_of_place(m, quad) * 4;
    store_pair<Instance::kOutType>(args.out, element, out.value[0], out.value[1]);
    store_pair<Instance::kOutType>(args.out, element + 2, out.value[2], out.value[3]);
    if constexpr (Instance::kHasLse) {
        if (quad % kRowQuads == 0)
            args.lse[token * (args.num_kv_heads * Instance::kGroupSize) + head] =
                empty ? negative_infinity() : (max + log2_approx(sum)) * kLn2;
    }
}

// A cluster has 2, 4 or kClusterBlocks blocks. Each merges its own warps into its shared memory, and then its share of the quads of all
// blocks.
struct alignas(16) ClusterStats {
    Pair row[Instance::kMTile];
};

template <u32 kMost> inline void share_with_cluster(float* shared, u32 nb_shared, ClusterStats& stats) {
    for (u32 quad = threadIdx.x; quad < kQuads; quad += blockDim.x) {
        Merged const merged = merge_shared<kMost>(shared, nb_shared, quad);
        reinterpret_cast<Quad*>(shared)[quad] = merged.acc;  // where no other thread reads
        if (quad % kRowQuads == 0) stats.row[quad / kRowQuads] = Pair{merged.max, merged.sum};
    }
    sync_cluster();
}

// Few quads: as many neighbouring lanes a quad as there are blocks, each with one block's. Many: a lane each with all blocks'.
constexpr bool kLaneABlock = kQuads <= 512;
static_assert(Instance::kMTile < 8 || !kLaneABlock || kQuads % 32 == 0, "lanes that shuffle are whole warps");
static_assert(!kArchHasClusters || Instance::kMTile < 8 || Instance::kMTile % kClusterBlocks == 0,
              "a block of a cluster has whole rows");

// All lanes of the quad get the result.
inline Merged merge_cluster(float const* shared, ClusterStats const& stats, u32 blocks, u32 quad) {
    constexpr u32 kPeers = kLaneABlock ? 1 : kClusterBlocks;  // of a lane, at most
    u32 const stats_address = shared_address(&stats.row[quad / kRowQuads]);
    u32 const acc_address = shared_address(reinterpret_cast<Quad const*>(shared) + quad);
    Pair pairs[kPeers];
    Quad values[kPeers];
#pragma unroll
    for (u32 i = 0; i < kPeers; ++i) {
        u32 const peer = kLaneABlock ? threadIdx.x & (blocks - 1) : min_of(i, blocks - 1);
        pairs[i] = load_peer_pair(peer_address(stats_address, peer));
        values[i] = load_peer_quad(peer_address(acc_address, peer));
    }
    Merged merged;
    if constexpr (!kLaneABlock) {
        merged.add(pairs, values, blocks);
        return merged;
    }
    merged.max = pairs[0].x;
#pragma unroll
    for (u32 mask = 1; mask < kClusterBlocks; mask *= 2) {
        if (mask < blocks) merged.max = fmaxf(merged.max, shuffle_xor(merged.max, mask));
    }
    float const weight = weight_of(pairs[0].x, merged.max);
    merged.sum = pairs[0].y * weight;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) merged.acc.value[e] = values[0].value[e] * weight;
#pragma unroll
    for (u32 mask = 1; mask < kClusterBlocks; mask *= 2) {
        if (mask >= blocks) break;
        merged.sum += shuffle_xor(merged.sum, mask);
#pragma unroll
        for (u32 e = 0; e < 4; ++e) merged.acc.value[e] += shuffle_xor(merged.acc.value[e], mask);
    }
    return merged;
}

// The block's result of a unit or a part: calls use(quad, merged) for each of its quads, once. log_blocks: of the blocks whose shared memory
// has a part of each.
template <u32 kMost, class Use>
inline void for_each_quad(QuadRange quads, float const* shared, u32 nb_shared, ClusterStats const& stats, u32 log_blocks, Use use) {
    bool const in_cluster = log_blocks != 0;
    u32 const log_lanes = kLaneABlock ? log_blocks : 0;
    for (u32 x = threadIdx.x; x < quads.count << log_lanes; x += blockDim.x) {
        u32 const quad = quads.first + (x >> log_lanes);
        Merged const merged =
            in_cluster ? merge_cluster(shared, stats, 1u << log_blocks, quad) : merge_shared<kMost>(shared, nb_shared, quad);
        if ((x & ((1u << log_lanes) - 1)) == 0) use(quad, merged);
    }
}

// The end of every block's work on a unit, once its warps have stored `nb_shared` partials, kMost at most, in `shared`,
// [nb_shared][kPartialFloats] in shared memory. `arrivals` is one word of shared memory.
//
// The parts of a unit merge as a tree: the last to arrive of each kMergeFanIn neighbours merges them and goes on to the next level, so
// that many partials are merged by many blocks, each sum has a fixed order, and no block waits for another. Where a cluster has a part, each of
// its blocks has some rows of it and merges them with those of its peers in the other parts: as many trees as blocks.
//
// kAtOnce: partials of the workspace that a thread has on their way; large blocks have registers for a whole group.
template <bool kClusters, u32 kMost, u32 kAtOnce = (kQuads > 512 ? kMergeFanIn : 8)>
inline void finish(KernelArgs const& args, Work const& work, float* shared, u32 nb_shared, u32* arrivals) {
    __shared__ ClusterStats stats;
    u32 const places = nb_shared;
    u32 index = work.sub_seq, count = work.nb_active, step = 1;
    u32 const log_trees = kClusters && kArchHasClusters ? 31 - __clz(static_cast<int>(args.cluster_size)) : 0;
    u32 log_blocks = log_trees;
    u32* counters = args.counters + work.rank;  // [level][slot][rank], of which a group uses its first member's
    QuadRange const quads{work.rank * (kQuads >> log_trees), kQuads >> log_trees};
    __syncthreads();
    if (log_blocks != 0) share_with_cluster<kMost>(shared, nb_shared, stats);
    for (;;) {
        for_each_quad<kMost>(quads, shared, nb_shared, stats, log_blocks, [&](u32 quad, Merged const& merged) {
            if (count > 1) {
                store_partial(partial_of(args, work, index * step), quad, merged);
            } else {
                write_output(args, work, quad, merged);
            }
        });
        if (count <= 1) break;
        u32 const group = index / kMergeFanIn;
        u32 const members = min_of(kMergeFanIn, count - group * kMergeFanIn);
        PartialList const list{group * kMergeFanIn * step, members, step};
        __syncthreads();
        if (log_blocks != 0) arrive_at_cluster();  // this block has read the others' shared memory
        if (threadIdx.x == 0)
            *arrivals = count_arrival(counters + ((work.first_slot + list.first * slot_stride(args)) << log_trees), members);
        __syncthreads();
        if (log_blocks != 0) wait_for_cluster();  // and they its own, which ends or is used anew
        if (*arrivals + 1 != members) return;
        nb_shared = merge_to_shared<kAtOnce>(args, work, list, quads, shared, places);
        index = group;
        count = ceil_div(count, kMergeFanIn);
        counters += args.nb_slots << log_trees;
        step *= kMergeFanIn;
        log_blocks = 0;
    }
    if (log_blocks != 0) sync_cluster();
}

}  // namespace xqajit::device
