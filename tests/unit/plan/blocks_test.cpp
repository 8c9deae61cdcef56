// The blocks that launches are cut into: threads, shared memory, clusters.
#include <set>

#include "catch.h"
#include "common/work_division.h"
#include "gmma/launch.h"
#include "hmma/launch.h"
#include "launches.h"

using namespace xqajit;
using test::bounds_of;
using test::contains;
using test::hmma_spec;
using test::kDivisions;
using test::mmha_spec;
using test::planned;

namespace {

device::HmmaShape shape_of(KernelSpec const& spec) {
    return device::hmma_shape(spec.head_dim, dtype_bytes(spec.kv_dtype), spec.m_tile);
}

// hmma: a team's threads, or a warp's where each works alone, and the bytes of shared memory of a block of some of them.
std::uint32_t team_threads(KernelSpec const& spec) { return 32 * shape_of(spec).team_warps; }

std::uint64_t dynamic_smem_of(KernelSpec const& spec, std::uint32_t threads) {
    return threads / team_threads(spec) * std::uint64_t{shape_of(spec).team_smem};
}

std::uint64_t smem_of(KernelSpec const& spec, std::uint32_t threads) {
    return device::hmma_static_smem(spec.head_dim, dtype_bytes(spec.kv_dtype), spec.m_tile) + dynamic_smem_of(spec, threads);
}

// As many whole teams as registers hold and shared memory does.
std::uint32_t largest_block(KernelSpec const& spec, std::uint32_t smem_optin) {
    std::uint32_t threads = shape_of(spec).max_threads;
    while (smem_of(spec, threads) > smem_optin) threads -= team_threads(spec);
    return threads;
}

}  // namespace

TEST_CASE("a block's threads and shared memory are the family's, and one bound holds for all launches of a kernel", "[plan]") {
    test::RandomLaunch random(6);
    std::set<std::uint32_t> tiles;
    for (int i = 0; i < 2000; ++i) {
        auto const [spec, bounds] = random.launch();
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok()) continue;
        INFO(to_string(spec) << " on " << bounds.smem_optin << " bytes");
        std::uint32_t const most_dynamic = most_dynamic_smem(spec, bounds.smem_optin);
        if (spec.family == Family::kMmha) {
            CHECK(plan->block_x == device::kMmhaThreads);
            CHECK(plan->dynamic_smem == 0);
            CHECK(most_dynamic == 0);
            continue;
        }
        if (spec.family == Family::kGmma) {
            CHECK((plan->block_x == device::gmma_threads(1) || plan->block_x == device::gmma_threads(2)));
            CHECK(plan->dynamic_smem <= most_dynamic);
            continue;
        }
        tiles.insert(spec.m_tile);
        CHECK(plan->block_x > 0);
        CHECK(plan->block_x % team_threads(spec) == 0);
        CHECK(plan->block_x <= largest_block(spec, bounds.smem_optin));
        CHECK(plan->dynamic_smem == dynamic_smem_of(spec, plan->block_x));
        CHECK(most_dynamic == dynamic_smem_of(spec, largest_block(spec, bounds.smem_optin)));
    }
    CHECK(tiles == std::set<std::uint32_t>{8, 16, 32, 64});
}

TEST_CASE("the blocks of every hmma kernel fit the shared memory of its GPU, the small ones twice, however divided",
          "[plan][C06][C07]") {
    constexpr std::uint32_t kReserved = 1024;  // of each block, and an SM has as much more than a block may have
    constexpr std::pair<std::int32_t, std::uint32_t> kSplits[] = {{XQAJIT_DIVISION_STATIC, 0},
                                                                  {XQAJIT_DIVISION_STATIC, 1},
                                                                  {XQAJIT_DIVISION_STATIC, 2},
                                                                  {XQAJIT_DIVISION_BALANCED, 0},
                                                                  {XQAJIT_DIVISION_INVARIANT, 0}};
    for (char const* const name : test::kArchNames)
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
            for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
                for (auto const& [group_size, q_len] : {std::pair{8u, 1u}, {16u, 1u}, {4u, 8u}, {64u, 1u}, {128u, 64u}}) {
                    ArchFacts const on = test::arch(name);
                    KernelSpec const spec = hmma_spec(group_size, head_dim, kv_dtype, q_len, on);
                    std::uint32_t const largest = largest_block(spec, on.smem_optin);
                    for (std::uint32_t const batch : {1u, 1000u}) {
                        LaunchBounds bounds = bounds_of(batch, 8192, 1);
                        bounds.q_len = q_len;
                        bounds.sm_count = on.sm_count;
                        bounds.smem_optin = on.smem_optin;
                        bounds.has_clusters = on.has_clusters;
                        for (auto const& [division, nb_sub_seq] : kSplits) {
                            bounds.division = division;
                            bounds.nb_sub_seq = nb_sub_seq;
                            LaunchPlan const plan = planned(spec, bounds);
                            std::uint64_t const smem = smem_of(spec, plan.block_x);
                            INFO(to_string(spec) << ", batch " << batch << ", " << division_name(division) << " " << nb_sub_seq
                                                 << ": " << smem << " bytes of " << on.smem_optin);
                            CHECK(smem <= on.smem_optin);
                            CHECK(plan.dynamic_smem <= most_dynamic_smem(spec, on.smem_optin));
                            bool const is_small = plan.block_x != largest && plan.cluster_size == 1;
                            if (is_small) CHECK(2 * (smem + kReserved) <= on.smem_optin + kReserved);
                        }
                    }
                }
}

TEST_CASE("an hmma block that needs more shared memory than the device grants is refused with both numbers", "[plan][C06]") {
    for (std::uint32_t const head_dim : {16u, 80u, 128u, 144u, 256u})
        for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const group_size : {8u, 16u, 32u, 64u})
                for (std::int32_t const division : kDivisions) {
                    KernelSpec const spec = hmma_spec(group_size, head_dim, kv_dtype);
                    std::uint64_t const least = smem_of(spec, team_threads(spec));
                    LaunchBounds bounds = bounds_of(7, 8192);
                    bounds.division = division;
                    bounds.smem_optin = static_cast<std::uint32_t>(least);
                    INFO(to_string(spec) << ", " << division_name(division));
                    CHECK(planned(spec, bounds).block_x == team_threads(spec));
                    CHECK(workspace_size(spec, bounds).ok());
                    bounds.smem_optin -= 1;
                    for (Status const& status : {make_plan(spec, bounds).status(), workspace_size(spec, bounds).status()}) {
                        INFO(status.message());
                        CHECK(status.code() == XQAJIT_UNSUPPORTED);
                        CHECK(contains(status.message(), to_string(spec)));
                        CHECK(contains(status.message(), "needs " + std::to_string(least) + " bytes of shared memory"));
                        CHECK(contains(status.message(), "grants a block " + std::to_string(bounds.smem_optin)));
                    }
                }
}

TEST_CASE("an hmma launch with units enough has two small blocks an SM where they fit, and one large block else", "[plan]") {
    struct Row {
        KernelSpec spec;
        std::uint32_t smem_optin, few, many;  // threads of a block
    };
    // Twelve or eight warps, then teams of two warps, then of four.
    std::int32_t const bf16 = XQAJIT_DTYPE_BF16, fp8 = XQAJIT_DTYPE_FP8_E4M3;
    for (Row const& row : {Row{hmma_spec(8), 232448, 384, 192},
                           {hmma_spec(16, 64), 232448, 256, 128},
                           {hmma_spec(8, 256), 232448, 256, 128},
                           {hmma_spec(64), 232448, 256, 128},
                           {hmma_spec(64), 166912, 192, 64},
                           {hmma_spec(64), 101376, 128, 128},  // two teams fit once, but one does not fit twice
                           {hmma_spec(64, 128, fp8), 166912, 256, 256},
                           {hmma_spec(16, 256), 232448, 256, 128},
                           {hmma_spec(16, 256), 101376, 128, 128},
                           {hmma_spec(64, 256), 232448, 256, 128},
                           {hmma_spec(64, 256, bf16), 166912, 128, 128}})
        for (std::int32_t const division : kDivisions)
            for (auto const& [batch, is_many] : {std::pair{1u, false}, {24u, false}, {25u, true}, {1000u, true}}) {
                LaunchBounds bounds = bounds_of(batch, 8192);  // x 8 heads: 198 of 132 SMs is the border
                bounds.division = division;
                bounds.smem_optin = row.smem_optin;
                INFO(to_string(row.spec) << " on " << row.smem_optin << " bytes, batch " << batch << ", "
                                         << division_name(division));
                // Invariant division does not ask how many units there are.
                bool const small = is_many || division == XQAJIT_DIVISION_INVARIANT;
                CHECK(planned(row.spec, bounds).block_x == (small ? row.many : row.few));
            }
}

TEST_CASE("clusters take hmma's few units of short shares under balanced division, and no other launch", "[plan]") {
    struct Row {
        std::uint32_t batch;
        std::uint64_t max_len;
        std::uint32_t num_kv_heads, cluster, grid, threads;
    };
    // 132 SMs: 8 clusters of 8 blocks.
    for (Row const& row : {Row{1, 128, 8, 1, 8, 384},  // nothing to merge
                           {1, 129, 8, 8, 64, 256},    // as short as it gets
                           {1, 1024, 8, 8, 64, 256},
                           {1, 4096, 8, 8, 64, 384},   // 512 tokens a block
                           {1, 4097, 8, 1, 128, 384},  // more: all SMs are needed
                           {2, 1024, 8, 1, 128, 384},  // 16 units
                           {8, 1024, 1, 8, 64, 256},   // 8 units again
                           {1, 1024, 1, 8, 8, 256},    // no more clusters than 128 tokens a block make
                           {1, 8192, 1, 8, 64, 256},
                           {1, 32768, 1, 8, 64, 384},
                           {1, 32769, 1, 1, 132, 384},
                           // Clusters left over: fewer tokens a block, in proportion.
                           {1, 2560, 5, 8, 40, 320},
                           {1, 2561, 5, 1, 100, 384},
                           {1, 6144, 3, 8, 48, 384},
                           {1, 6145, 3, 1, 132, 384},
                           // As many requests as fit get a cluster each and no more, however uneven they are.
                           {4, 4096, 2, 8, 64, 384},
                           {8, 4096, 1, 8, 64, 384}}) {
        LaunchBounds bounds = bounds_of(row.batch, row.max_len, row.num_kv_heads);
        bounds.division = XQAJIT_DIVISION_BALANCED;
        bounds.has_clusters = true;
        LaunchPlan const plan = planned(hmma_spec(8), bounds);
        INFO(row.batch << " x " << row.max_len << ", " << row.num_kv_heads << " KV heads: " << plan.to_string());
        CHECK(plan.cluster_size == row.cluster);
        CHECK(plan.grid_x == row.grid);
        CHECK(plan.block_x == row.threads);
        CHECK(planned(mmha_spec(8), bounds).cluster_size == 1);
        bounds.sm_count = 48;  // whose groups may be too small
        CHECK(planned(hmma_spec(8), bounds).cluster_size == 1);
        bounds.sm_count = 132;
        bounds.has_clusters = false;
        CHECK(planned(hmma_spec(8), bounds).cluster_size == 1);
        bounds.has_clusters = true;
        for (std::int32_t const division : {XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT}) {
            bounds.division = division;
            CHECK(planned(hmma_spec(8), bounds).cluster_size == 1);
        }
    }
}
