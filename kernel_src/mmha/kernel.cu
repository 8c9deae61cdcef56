// mmha: decode attention without tensor cores, for every shape of the contract. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: 4 warps, each its own tokens.
#include "common/find_work.cuh"
#include "mmha/attend.cuh"

using namespace xqajit::device;

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    xqajit_kernel(__grid_constant__ const KernelArgs args) {
    __shared__ alignas(16) float warps[Config::kWarps][kPartialFloats];
    __shared__ u32 arrivals;

    // 1. Which rows and which tokens.
    Place const place = place_of_block(args);
    prefetch_pages(args, place, threadIdx.x);
    wait_for_previous_grids();
    Work const work = find_work(args, place);
    if (!has_work(work)) return;

    // 2. Scores, softmax and weighted V, each warp on its own.
    u32 const warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    store_state(attend(args, work, warp, lane), warps[warp], lane);

    // 3. One result for the block, then one for the request.
    finish<false, Config::kWarps>(args, work, &warps[0][0], Config::kWarps, &arrivals);
}
