// gmma: decode attention for Hopper, sm_90a. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: gmma_threads(groups); the last warp copies K and V, the others compute.
#include "gmma/config.cuh"

#include "common/find_work.cuh"
#include "gmma/consume.cuh"
#include "gmma/produce.cuh"
#include "gmma/skip.cuh"

using namespace xqajit::device;

extern "C" __global__ void __launch_bounds__(gmma_threads(kMostGmmaGroups), 1)
    xqajit_kernel(__grid_constant__ const KernelArgs args, __grid_constant__ const TensorMap k_map,
                  __grid_constant__ const TensorMap v_map) {
    alignas(128) extern __shared__ u8 smem[];  // the rings, from a multiple of kGmmaAlignment on; at the end the partial results
    __shared__ Shared shared;
    __shared__ Verdicts verdicts;  // of kernels with skip-softmax
    u32 const warp = threadIdx.x / 32, lane = threadIdx.x % 32, nb_warps = blockDim.x / 32 - 1;
    RingPlace const ring = place_ring(args, smem, shared);
    float* const partials = reinterpret_cast<float*>(smem + (ring.items - shared_address(smem)));

    // 1. What needs no result of the grids before: barriers, and the first misses of the page table and the tensor maps.
    Place const place = place_of_block(args);
    if (warp == nb_warps) {
        prefetch_pages(args, place, lane);
        if (lane == 0) prefetch_map(k_map), prefetch_map(v_map);
    } else if (warp == 0) {
        for (u32 i = lane; i < ring.nb_groups * ring.nb_items; i += 32) {
            init_barrier(ring.full_at(i), 1);
            init_barrier(ring.empty_at(i), 4);
        }
        if (lane == 0) {
            init_barrier(shared_address(&shared.work_ready), 1);
            init_barrier(shared_address(&shared.query_ready), Config::kRowTiles);
        }
        if constexpr (Config::kSkipSoftmax) init_verdicts(verdicts, lane);
        publish_barriers();
    }
    __syncthreads();
    wait_for_previous_grids();

    // 2. The roles. All threads come together at one barrier.
    Lane const of_tile{lane / 4, lane % 4};
    WarpState state;
    if (warp == nb_warps) {
        produce(args, k_map, v_map, place, ring, shared, verdicts, lane);
    } else {
        consume(args, ring, shared, verdicts, warp, of_tile, state);
    }
    if (!has_work(shared.work)) return;
    __syncthreads();  // no ring is read any more
    if (warp != nb_warps) store_state(state, partials + warp * kPartialFloats, of_tile);

    // 3. One result for the block, for its cluster, then for the unit.
    finish<true, 4 * kMostGmmaGroups>(args, shared.work, partials, nb_warps, &shared.arrivals);
}
