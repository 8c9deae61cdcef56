// hmma: decode attention on mma.sync, sm_80 and later. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: up to Config::kShape.max_threads; each warp has its own tokens.
#include "common/find_work.cuh"
#include "hmma/attend.cuh"

using namespace xqajit::device;

extern "C" __global__ void __launch_bounds__(Config::kShape.max_threads, 1) xqajit_kernel(__grid_constant__ const KernelArgs args) {
    extern __shared__ Quad smem[];  // [warps][kPartialFloats] floats
    __shared__ Query query;
    __shared__ Work kept;  // for the end, so that the loop has the registers
    __shared__ u32 arrivals;
    wait_for_previous_grids();

    // 1. Which rows and which tokens.
    Work const work = find_work(args);
    if (work.nb_rows == 0 || work.sub_seq >= work.nb_active) return;
    if (threadIdx.x == 0) kept = work;

    // 2. Scores, softmax and weighted V, each warp on its own.
    float* const warps = smem[0].value;
    u32 const warp = threadIdx.x / 32;
    Lane const lane{threadIdx.x % 32 / 4, threadIdx.x % 4};
    store_state(attend(args, work, warp, blockDim.x / 32, lane, query), warps + warp * kPartialFloats, lane);

    // 3. One result for the block, then one for the request.
    finish(args, kept, warps, &arrivals);
}
