// gmma's blocks: groups, blocks an SM, clusters, and the shared memory that each gets.
#include "catch.h"
#include "common/work_division.h"
#include "gmma/launch.h"
#include "launches.h"

using namespace xqajit;
using test::bounds_of;
using test::contains;
using test::gmma_spec;
using test::kDivisions;
using test::planned;

namespace {

constexpr std::uint32_t kReserved = 1024;  // bytes of each block, and an SM has as much more than a block may have

LaunchBounds balanced(std::uint32_t batch, std::uint64_t max_len, std::uint32_t num_kv_heads) {
    LaunchBounds bounds = bounds_of(batch, max_len, num_kv_heads);
    bounds.division = XQAJIT_DIVISION_BALANCED;
    bounds.has_clusters = true;
    return bounds;
}

std::uint64_t static_smem(KernelSpec const& spec) { return device::gmma_static_smem(spec.head_dim, spec.m_tile); }

// A ring of two items or each warp's partial result, behind what aligning them may lose.
std::uint64_t least_dynamic(KernelSpec const& spec, std::uint32_t threads) {
    std::uint64_t const warps = (threads - 32) / 32;
    std::uint64_t const ring = 2 * device::gmma_shape(spec.head_dim, dtype_bytes(spec.kv_dtype)).item_bytes;
    std::uint64_t const partials = warps * device::partial_floats(spec.m_tile, spec.head_dim_v) * 4;
    return (std::max(ring, partials) + 127) / 128 * 128 + device::kGmmaAlignment;
}

}  // namespace

TEST_CASE("gmma's static shared memory holds the rows of q and their statistics", "[plan]") {
    CHECK(device::gmma_static_smem(16, 8) == 8 * 268 + 1024);
    CHECK(device::gmma_static_smem(128, 16) == 16 * 268 + 1024);
    CHECK(device::gmma_static_smem(144, 8) == 8 * 524 + 1024);
    CHECK(device::gmma_static_smem(256, 16) == 16 * 524 + 1024);
}

TEST_CASE("gmma's few units get large blocks in the largest clusters that fit, many units small blocks", "[plan]") {
    struct Row {
        KernelSpec spec;
        std::uint32_t batch;
        std::uint64_t max_len;
        std::uint32_t num_kv_heads, threads, cluster, grid, dynamic_smem;
    };
    KernelSpec const plain = gmma_spec(8), small = gmma_spec(8, 64), large = gmma_spec(16, 256);
    std::uint32_t const one = 229248, two = 112512;  // bytes of `plain`'s blocks, as one and as two an SM
    // 132 SMs.
    for (Row const& row :
         {Row{plain, 1, 128, 8, 288, 1, 8, one},                                          // nothing to merge
          {plain, 1, 255, 8, 288, 1, 16, one},      {plain, 1, 256, 8, 288, 2, 16, two},  // 128 tokens for each block of a cluster
          {plain, 1, 511, 8, 288, 2, 32, two},      {plain, 1, 512, 8, 288, 4, 32, two},
          {plain, 1, 1023, 8, 288, 4, 64, two},     {plain, 1, 1024, 8, 288, 8, 64, two},
          {plain, 1, 4096, 8, 288, 8, 192, two},    {plain, 1, 131072, 8, 288, 8, 192, two},  // 24 clusters surely run at once
          {plain, 1, 8192, 1, 288, 8, 64, two},     {plain, 2, 8192, 8, 288, 8, 192, two},    // 16 units: as many SMs as there are
          {plain, 3, 8192, 8, 288, 4, 192, two},    {plain, 4, 8192, 8, 288, 4, 192, two},
          {plain, 5, 8192, 8, 288, 2, 192, two},    {plain, 8, 8192, 8, 288, 2, 192, two},
          {plain, 9, 8192, 8, 288, 1, 136, one},                                             // 72 units
          {plain, 16, 8192, 8, 288, 1, 248, one},   {plain, 17, 8192, 8, 160, 1, 264, two},  // 136 units
          {plain, 64, 8192, 8, 160, 1, 640, two},   {plain, 1000, 8192, 8, 160, 1, 8128, two},
          {small, 1, 8192, 8, 288, 8, 192, two},    {small, 1000, 8192, 8, 160, 1, 8264, 54144},  // four an SM
          {large, 1, 8192, 8, 160, 8, 192, 106240},  // two groups' partial results do not fit twice
          {large, 9, 8192, 8, 288, 1, 136, 222976}, {large, 1000, 8192, 8, 160, 1, 8192, 67328}}) {  // three an SM
        LaunchPlan const plan = planned(row.spec, balanced(row.batch, row.max_len, row.num_kv_heads));
        INFO(to_string(row.spec) << ", " << row.batch << " x " << row.max_len << ", " << row.num_kv_heads
                                 << " KV heads: " << plan.to_string() << ", " << plan.dynamic_smem << " bytes");
        CHECK(plan.block_x == row.threads);
        CHECK(plan.cluster_size == row.cluster);
        CHECK(plan.grid_x == row.grid);
        CHECK(plan.dynamic_smem == row.dynamic_smem);
    }
}

TEST_CASE("gmma's clusters need balanced division, a GPU that has them, and SMs enough", "[plan]") {
    for (std::uint32_t const batch : {1u, 3u, 8u})
        for (std::uint64_t const max_len : {std::uint64_t{300}, std::uint64_t{8192}}) {
            LaunchBounds bounds = balanced(batch, max_len, 8);
            INFO(batch << " x " << max_len);
            CHECK(planned(gmma_spec(8), bounds).cluster_size > 1);
            bounds.has_clusters = false;
            CHECK(planned(gmma_spec(8), bounds).cluster_size == 1);
            bounds.has_clusters = true;
            for (std::int32_t const division : {XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT}) {
                bounds.division = division;
                LaunchPlan const plan = planned(gmma_spec(8), bounds);
                CHECK(plan.cluster_size == 1);
                CHECK(plan.block_x == device::gmma_threads(division == XQAJIT_DIVISION_STATIC ? 2 : 1));
            }
        }
    LaunchBounds bounds = balanced(1, 8192, 8);
    bounds.sm_count = 64;
    CHECK(planned(gmma_spec(8), bounds).cluster_size == 8);
    bounds.sm_count = 63;
    CHECK(planned(gmma_spec(8), bounds).cluster_size == 1);
}

TEST_CASE("gmma's clusters have an SM for each block, tokens for each, and run at once", "[plan]") {
    for (std::uint32_t const sm_count : {64u, 78u, 114u, 132u, 144u})
        for (std::uint32_t const heads : {1u, 2u, 3u, 8u})
            for (std::uint32_t batch = 1; batch <= 160; ++batch)
                for (std::uint64_t const max_len : {1u, 127u, 129u, 256u, 700u, 1024u, 5000u, 100000u}) {
                    LaunchBounds bounds = balanced(batch, max_len, heads);
                    bounds.sm_count = sm_count;
                    LaunchPlan const plan = planned(gmma_spec(8), bounds);
                    std::uint32_t const cluster = plan.cluster_size, units = batch * heads;
                    INFO(sm_count << " SMs, " << batch << " x " << max_len << ", " << heads << " KV heads: " << plan.to_string());
                    bool right = cluster == 1 || cluster == 2 || cluster == 4 || cluster == 8;
                    right = right && (cluster == 1 || (units * cluster <= sm_count && max_len >= 128 * cluster));
                    // The next larger one would not have.
                    right = right && (cluster == 8 || 2 * cluster * units > sm_count || max_len < 256 * cluster);
                    right = right && plan.grid_x % cluster == 0;
                    if (cluster > 1) right = right && plan.grid_x / cluster <= std::max(units, 2 * sm_count / cluster * 3 / 4);
                    if (!right) FAIL("a cluster of " << cluster);
                }
}

TEST_CASE("where every SM has a unit, gmma's extra parts are half a wave at most", "[plan]") {
    for (std::uint32_t const heads : {1u, 8u, 200u})
        for (std::uint32_t batch = 1; batch <= 2000; batch += 1 + batch / 8) {
            LaunchBounds const bounds = balanced(batch, 1 << 20, heads);
            LaunchPlan const plan = planned(gmma_spec(8), bounds);
            if (batch * heads < bounds.sm_count) continue;
            std::uint32_t const wave = std::max(1u, 2 * bounds.sm_count / heads);
            INFO(batch << " requests, " << heads << " KV heads: " << plan.to_string());
            CHECK(plan.nb_extra_parts <= std::max(1u, wave / 2));
            CHECK(plan.nb_extra_parts == std::min(std::max(1u, wave / 2), std::max(batch < wave ? wave - batch : 0, batch - 1)));
        }
}

TEST_CASE("gmma's blocks fit the shared memory of their GPU as often as they are meant to, and hold a ring and the partial results",
          "[plan][C06]") {
    constexpr std::pair<std::int32_t, std::uint32_t> kSplits[] = {
        {XQAJIT_DIVISION_STATIC, 0}, {XQAJIT_DIVISION_STATIC, 4}, {XQAJIT_DIVISION_BALANCED, 0}, {XQAJIT_DIVISION_INVARIANT, 0}};
    for (std::uint32_t const smem_optin : {101376u, 166912u, 232448u})
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
            for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
                for (std::uint32_t const group_size : {2u, 8u, 9u, 16u}) {
                    KernelSpec const spec = gmma_spec(group_size, head_dim, kv_dtype);
                    std::uint32_t const most = most_dynamic_smem(spec, smem_optin);
                    CHECK(static_smem(spec) + most <= smem_optin);
                    CHECK(static_smem(spec) + most + 128 > smem_optin);  // all that there is
                    for (std::uint32_t const batch : {1u, 2u, 4u, 12u, 1000u})
                        for (auto const& [division, nb_sub_seq] : kSplits) {
                            LaunchBounds bounds = balanced(batch, 8192, 8);
                            bounds.smem_optin = smem_optin;
                            bounds.division = division;
                            bounds.nb_sub_seq = nb_sub_seq;
                            LaunchPlan const plan = planned(spec, bounds);
                            INFO(to_string(spec) << " on " << smem_optin << " bytes, batch " << batch << ": " << plan.to_string()
                                                 << ", " << plan.dynamic_smem << " bytes");
                            CHECK(plan.dynamic_smem % 128 == 0);
                            CHECK(plan.dynamic_smem <= most);
                            CHECK(plan.dynamic_smem >= least_dynamic(spec, plan.block_x));
                            if (smem_optin != 232448) continue;
                            bool const small = division == XQAJIT_DIVISION_INVARIANT || batch * 8 >= bounds.sm_count;
                            std::uint64_t const per_sm = small ? device::gmma_shape(head_dim, dtype_bytes(kv_dtype)).blocks_an_sm
                                                         : plan.cluster_size > 1 ? 2
                                                                                 : 1;
                            CHECK(per_sm * (static_smem(spec) + plan.dynamic_smem + kReserved) <= smem_optin + kReserved);
                            CHECK(per_sm * (static_smem(spec) + plan.dynamic_smem + 128 + kReserved) >
                                  smem_optin + kReserved - per_sm);
                        }
                }
}

TEST_CASE("a gmma block that needs more shared memory than the device grants is refused with both numbers", "[plan][C06]") {
    for (std::uint32_t const head_dim : {16u, 80u, 128u, 144u, 256u})
        for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const group_size : {8u, 16u})
                for (std::uint32_t const batch : {1u, 7u, 100u})
                    for (std::int32_t const division : kDivisions) {
                        KernelSpec const spec = gmma_spec(group_size, head_dim, kv_dtype);
                        std::uint64_t const least = static_smem(spec) + least_dynamic(spec, device::gmma_threads(1));
                        LaunchBounds bounds = balanced(batch, 8192, 8);
                        bounds.division = division;
                        bounds.smem_optin = static_cast<std::uint32_t>(least);
                        INFO(to_string(spec) << ", batch " << batch << ", " << division_name(division));
                        CHECK(static_smem(spec) + planned(spec, bounds).dynamic_smem == least);
                        CHECK(workspace_size(spec, bounds).ok());
                        bounds.smem_optin -= 1;
                        for (Status const& status : {make_plan(spec, bounds).status(), workspace_size(spec, bounds).status()}) {
                            INFO(status.message());
                            CHECK(status.code() == XQAJIT_UNSUPPORTED);
                            CHECK(contains(status.message(), "needs " + std::to_string(least) + " bytes of shared memory"));
                            CHECK(contains(status.message(), "grants a block " + std::to_string(bounds.smem_optin)));
                        }
                    }
}
