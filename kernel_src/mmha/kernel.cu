// mmha: decode attention without tensor cores, for every shape of the contract. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: 4 warps, each its own tokens.
#include "mmha/merge.cuh"

using namespace xqajit::device;

extern "C" __global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    xqajit_kernel(__grid_constant__ const KernelArgs args) {
    __shared__ SharedMem smem;
    wait_for_previous_grids();

    // 1. Which rows and which tokens.
    Work const work = find_work(args);
    if (work.nb_rows == 0 || work.sub_seq >= work.nb_active) return;

    // 2. Scores, softmax and weighted V, each warp on its own.
    u32 const warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    WarpState const state = attend(args, work, warp, lane);

    // 3. One result for the block.
    BlockResult result = merge_warps(state, smem, warp, lane);

    // 4. One result for the request: the last block to arrive merges, so that only it writes the output.
    if (work.nb_active != 1) {
        write_partial(args, work, result);
        __syncthreads();
        if (threadIdx.x == 0) smem.arrivals_before = count_arrival(args.counters + work.unit, work.nb_active);
        __syncthreads();
        if (smem.arrivals_before + 1 != work.nb_active) return;
        result = merge_sub_seqs(args, work, smem, warp, lane);
    }
    write_output(args, work, result);
}
