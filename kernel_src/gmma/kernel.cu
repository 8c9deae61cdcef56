// gmma: decode attention for Hopper, sm_90a. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: gmma_threads(groups); the last warp copies K and V, the others compute.
#include "gmma/config.cuh"

#include "common/find_work.cuh"
#if XQAJIT_M_TILE > 32
#include "gmma/tall.cuh"
#elif XQAJIT_M_TILE > 16 || XQAJIT_NUMERIC != 1
#include "gmma/wide.cuh"
#else
#include "gmma/skip.cuh"
#endif
#include "gmma/produce.cuh"

using namespace xqajit::device;

// Two of the largest blocks an SM, as far as the rows leave registers for that: the blocks of the next grid, and those that find no work,
// then need not wait for the others to end.
extern "C" __global__ void __launch_bounds__(gmma_threads(kMostGmmaGroups), gmma_large_blocks(Config::kKind))
    xqajit_kernel(__grid_constant__ const KernelArgs args, __grid_constant__ const TensorMap k_map,
                  __grid_constant__ const TensorMap v_map) {
    alignas(128) extern __shared__ u8
        smem[];  // from a multiple of kGmmaAlignment on: operands, the rings; at the end the partial results
    __shared__ Shared shared;
    __shared__ ConsumerShared of_consumers;
    u32 const warp = threadIdx.x / 32, lane = threadIdx.x % 32, nb_warps = blockDim.x / 32 - 1;
    u32 const begin = (shared_address(smem) + kGmmaAlignment - 1) / kGmmaAlignment * kGmmaAlignment;
    RingPlace const ring = place_ring(args, begin + operand_bytes(nb_warps / 4), shared);
    float* const partials = reinterpret_cast<float*>(smem + (begin - shared_address(smem)));

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
            init_barrier(shared_address(&shared.query_ready), query_arrivals(nb_warps));
        }
        init_consumers(of_consumers, lane);
        publish_barriers();
    }
    __syncthreads();
    wait_for_previous_grids();

    // 2. The roles. All threads come together at one barrier.
    Lane const of_tile{lane / 4, lane % 4};
    ConsumerState state;
    if (warp == nb_warps) {
        produce(args, k_map, v_map, place, ring, shared, of_consumers, lane);
    } else {
        consume(args, ring, shared, of_consumers, warp, of_tile, state);
    }
    if (!has_work(shared.work)) return;
    __syncthreads();  // no ring is read any more
    if (warp != nb_warps) store_state(state, of_consumers, partials, warp, of_tile);

    // 3. One result for the block, for its cluster, then for the unit.
    finish<true, kPartialsOfGroup * kMostGmmaGroups, 8>(args, shared.work, partials, kPartialsOfGroup * ring.nb_groups,
                                                        &shared.arrivals);
}
