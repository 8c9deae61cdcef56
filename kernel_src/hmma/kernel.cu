// hmma: decode attention on mma.sync, sm_80 and later. README.md has the schedule.
// Grid: one dimension, see contract.h. Block: up to Config::kShape.max_threads; each warp, or team of warps, has its own tokens.
#include "common/find_work.cuh"
// Each has its attend(); the one not needed would cost a tenth of the compile time.
#if XQAJIT_M_TILE > 16
#include "hmma/team.cuh"
#else
#include "hmma/attend.cuh"
#endif

using namespace xqajit::device;

static_assert(Config::kHasTeams == (XQAJIT_M_TILE > 16), "the file included is the one that the sizes ask for");

extern "C" __global__ void __launch_bounds__(Config::kShape.max_threads, 1) xqajit_kernel(__grid_constant__ const KernelArgs args) {
    alignas(128) extern __shared__ u8 smem[];  // [warps or teams][Config::kShape.team_smem]
    __shared__ Work kept;                      // for the end, so that the loop has the registers
    __shared__ u32 arrivals;

    // 1. Which rows and which tokens.
    Place const place = place_of_block(args);
    prefetch_pages(args, place, threadIdx.x);
    wait_for_previous_grids();
    Work const work = find_work(args, place);
    if (!has_work(work)) return;
    if (threadIdx.x == 0) kept = work;

    // 2. Scores, softmax and weighted V, each warp or team on its own.
    u32 const index = threadIdx.x / 32 / Config::kTeamWarps, nb_partials = blockDim.x / 32 / Config::kTeamWarps;
    attend(args, work, index, nb_partials, Lane{threadIdx.x % 32 / 4, threadIdx.x % 4}, smem);
    let_next_grids_start();

    // 3. One result for the block, for its cluster, then for the unit.
    finish<true, Config::kMostTeams>(args, kept, reinterpret_cast<float*>(smem), nb_partials, &arrivals);
}
