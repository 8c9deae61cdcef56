// gmma's blocks: groups, blocks an SM, clusters, and the shared memory that each gets.
#include "catch.h"
#include "common/work_division.h"
#include "launches.h"
#include "plan/blocks.h"

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

std::uint64_t static_smem(KernelSpec const& spec) { return device::gmma_static_smem(gmma_kind(spec)); }

device::GmmaShape shape_of(KernelSpec const& spec) { return device::gmma_shape(gmma_kind(spec)); }

// That take turns by tiles.
std::uint32_t groups_of(LaunchPlan const& plan) { return (plan.block_x - 32) / 128; }

}  // namespace

TEST_CASE("gmma's static shared memory holds the rows of q and their statistics", "[plan]") {
    CHECK(device::gmma_static_smem({16, 2, 8}) == 8 * 268 + 1024);
    CHECK(device::gmma_static_smem({128, 2, 16}) == 16 * 268 + 1024);
    CHECK(device::gmma_static_smem({144, 2, 8}) == 8 * 524 + 1024);
    CHECK(device::gmma_static_smem({256, 2, 8}) == 8 * 524 + 1024);
    CHECK(device::gmma_static_smem({128, 2, 32}) == 32 * 72 + 1024);  // those of both groups, and the cluster's
    CHECK(device::gmma_static_smem({128, 2, 64}) == 64 * 12 + 1024);  // the warps keep theirs
}

TEST_CASE("wide and tall gmma blocks have q in front of their rings, and what each group makes for itself", "[plan]") {
    auto const operands = [](std::uint32_t head_dim, std::uint32_t bytes, std::uint32_t rows, std::uint32_t groups,
                             bool fp8_math = false) {
        return device::gmma_operand_bytes(device::gmma_shape({head_dim, bytes, rows, fp8_math}), bytes, rows, groups);
    };
    CHECK(operands(128, 2, 16, 2) == 0);
    CHECK(operands(64, 2, 32, 1) == 32 * 128 + 8192);
    CHECK(operands(64, 2, 32, 2) == 32 * 128 + 2 * 8192);
    CHECK(operands(80, 2, 32, 1) == 2 * 32 * 128 + 8192);  // whole segments of 64 elements
    CHECK(operands(128, 1, 8, 2, true) == 1024 + 2 * 1024);
    CHECK(operands(192, 2, 32, 1) == 3 * 32 * 128 + 8192);
    CHECK(operands(192, 1, 32, 1) == 4 * 32 * 128 + 8192);  // of 128 codes
    CHECK(operands(128, 2, 64, 2) == 2 * 64 * 128);         // tall: K and V of 16 bits are operands as they come
    CHECK(operands(64, 1, 64, 1) == 64 * 128 + 2 * 8192);   // others' in 16 bits,
    CHECK(operands(128, 1, 64, 2) == 2 * 64 * 128 + 2 * 2 * 16384);
    CHECK(operands(128, 1, 64, 2, true) == 64 * 128 + 2 * 2 * 8192);  // or V's of two tiles transposed
}

TEST_CASE("what gmma keeps of tiles that may be skipped fits beside the rings", "[plan]") {
    // Two groups: 8 verdicts of four warps' rows, two barriers and a word; scores of 6 or 4 tiles of 64 tokens.
    CHECK(device::gmma_static_smem({.head_dim = 128, .kv_bytes = 2, .m_tile = 8, .skips = true}) ==
          8 * 268 + 1024 + 2 * (8 * (4 * 8 * 4 + 20) + 6 * 64 * 8 * 4));
    CHECK(device::gmma_static_smem({.head_dim = 128, .kv_bytes = 2, .m_tile = 16, .skips = true}) ==
          16 * 268 + 1024 + 2 * (8 * (4 * 16 * 4 + 20) + 4 * 64 * 16 * 4));
    for (std::uint32_t const head_dim : {16u, 64u, 128u, 256u})
        for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const rows : {8u, 16u}) {
                if (rows == 16 && head_dim > 128) continue;
                KernelSpec skipping = gmma_spec(rows, head_dim, kv_dtype);
                skipping.skip_softmax = true;
                for (std::uint32_t const batch : {1u, 8u, 32u, 128u}) {
                    LaunchPlan const with = planned(skipping, balanced(batch, 8192, 8));
                    INFO(to_string(skipping) << ", batch " << batch << ": " << with.to_string());
                    CHECK(with.dynamic_smem + static_smem(skipping) <= bounds_of(1, 1, 1).smem_optin);
                }
            }
}

TEST_CASE("rings hold what an SM's blocks together should have on their way, and at least K and V", "[plan]") {
    constexpr std::uint32_t kItems[][6] = {{64, 1, 8, 12, 6, 3},  // head dim, bytes of an element, rows; items of 1, 2 and 4 blocks
                                           {64, 2, 8, 12, 6, 3}, {128, 1, 8, 12, 6, 3}, {128, 2, 8, 6, 3, 2},
                                           {256, 1, 8, 6, 3, 2}, {256, 2, 8, 3, 2, 2},  {128, 2, 16, 6, 3, 2}};
    for (auto const& [head_dim, bytes, rows, one, two, four] : kItems) {
        device::GmmaShape const shape = device::gmma_shape({head_dim, bytes, rows});
        INFO(head_dim << ", " << bytes << " bytes, " << rows << " rows");
        CHECK(device::gmma_ring_items(shape, 1, 1) == one);
        CHECK(device::gmma_ring_items(shape, 1, 2) == two);
        CHECK(device::gmma_ring_items(shape, 2, 1) == two);
        CHECK(device::gmma_ring_items(shape, 1, 4) == four);
    }
    CHECK(device::gmma_shape({64, 2, 8}).blocks_an_sm == 4);
    CHECK(device::gmma_shape({128, 1, 8}).blocks_an_sm == 4);
    CHECK(device::gmma_shape({128, 1, 16}).blocks_an_sm == 2);
    CHECK(device::gmma_shape({128, 2, 8}).blocks_an_sm == 2);
}

TEST_CASE("gmma's few units get clusters that hold them whole, or parts, and many units small blocks", "[plan]") {
    struct Row {
        KernelSpec spec;
        std::uint32_t batch;
        std::uint64_t max_len;
        std::uint32_t num_kv_heads, threads, cluster, grid, ring_items;
    };
    KernelSpec const plain = gmma_spec(8), fp8 = gmma_spec(8, 128, XQAJIT_DTYPE_FP8_E4M3), large = gmma_spec(8, 256),
                     wide = gmma_spec(32), widest = gmma_spec(64), thin = gmma_spec(8, 64, XQAJIT_DTYPE_INT8),
                     thin_rows = gmma_spec(16, 64, XQAJIT_DTYPE_INT8), thin_wide = gmma_spec(32, 64, XQAJIT_DTYPE_INT8);
    // 132 SMs.
    for (Row const& row : {Row{plain, 1, 128, 8, 288, 1, 8, 3},  // nothing to merge
                           {plain, 1, 255, 8, 288, 1, 8, 3},
                           {plain, 1, 256, 8, 288, 2, 16, 3},  // 128 tokens for each block of a cluster
                           {plain, 1, 511, 8, 288, 2, 16, 3},
                           {plain, 1, 512, 8, 288, 4, 32, 3},
                           {plain, 1, 1024, 8, 288, 8, 64, 3},
                           {plain, 1, 6144, 8, 288, 8, 64, 3},
                           {plain, 1, 6145, 8, 288, 2, 128, 3},
                           {plain, 1, 131072, 8, 288, 2, 128, 3},  // eight parts, a cluster each
                           {plain, 1, 1024, 1, 288, 8, 8, 3},
                           {plain, 1, 8192, 1, 288, 8, 64, 3},     // eight parts of 1024 tokens
                           {plain, 1, 131072, 1, 288, 8, 112, 3},  // as many clusters as run at once
                           {plain, 2, 2048, 8, 288, 4, 64, 3},
                           {plain, 2, 3073, 8, 288, 1, 128, 3},
                           {plain, 4, 1536, 8, 288, 2, 64, 3},
                           {plain, 4, 1537, 8, 288, 1, 128, 3},
                           {plain, 8, 2048, 8, 288, 2, 128, 3},  // short shares: none are added to even out the lengths
                           {plain, 8, 2049, 8, 288, 2, 240, 3},
                           {plain, 8, 131072, 8, 288, 2, 240, 3},  // a cluster holds each unit, at any length
                           {plain, 9, 8192, 8, 288, 2, 272, 2},    // two large blocks an SM
                           {plain, 16, 8192, 8, 288, 2, 496, 2},
                           {plain, 16, 255, 8, 288, 1, 128, 3},
                           {plain, 17, 8192, 8, 288, 1, 264, 2},
                           {plain, 32, 1024, 8, 288, 1, 256, 2},
                           {plain, 33, 1025, 8, 288, 1, 520, 2},
                           {plain, 34, 1025, 8, 160, 1, 536, 3},  // two small ones
                           {fp8, 32, 4096, 8, 288, 1, 504, 3},
                           {fp8, 32, 2048, 8, 288, 1, 504, 3},
                           {fp8, 128, 2048, 8, 160, 1, 1552, 3},  // four
                           {large, 8, 2048, 8, 288, 2, 128, 2},
                           {large, 9, 2048, 8, 288, 1, 136, 2},
                           {large, 17, 2048, 8, 160, 1, 264, 2},
                           {large, 128, 2048, 8, 160, 1, 1288, 2},
                           {wide, 8, 2048, 8, 288, 2, 128, 3},
                           {wide, 32, 4096, 8, 288, 1, 504, 2},
                           {wide, 128, 4096, 8, 160, 1, 1552, 2},  // four
                           {widest, 8, 2048, 8, 288, 2, 128, 3},
                           {widest, 32, 4096, 8, 160, 1, 504, 3},  // two small ones
                           // Rows of 64 bytes: two large blocks an SM for parts as well.
                           {thin, 1, 6144, 8, 288, 8, 64, 6},
                           {thin, 1, 131072, 8, 288, 2, 256, 3},
                           {thin, 2, 131072, 8, 288, 1, 264, 3},
                           {thin, 8, 2048, 8, 288, 1, 264, 3},
                           {thin, 9, 2048, 8, 288, 2, 144, 3},
                           {thin_rows, 1, 131072, 8, 288, 2, 128, 6},  // for which it has no registers
                           {thin_wide, 1, 131072, 8, 288, 2, 128, 6}}) {
        LaunchPlan const plan = planned(row.spec, balanced(row.batch, row.max_len, row.num_kv_heads));
        INFO(to_string(row.spec) << ", " << row.batch << " x " << row.max_len << ", " << row.num_kv_heads
                                 << " KV heads: " << plan.to_string() << ", " << plan.ring_items << " items");
        CHECK(plan.block_x == row.threads);
        CHECK(plan.cluster_size == row.cluster);
        CHECK(plan.grid_x == row.grid);
        CHECK(plan.ring_items == row.ring_items);
        CHECK(plan.dynamic_smem == device::gmma_dynamic_smem(shape_of(row.spec), row.spec.head_dim, dtype_bytes(row.spec.kv_dtype),
                                                             row.spec.m_tile, groups_of(plan), row.ring_items));
    }
}

TEST_CASE("gmma's clusters need balanced division, a GPU that has them, and SMs enough", "[plan]") {
    for (std::uint32_t const batch : {1u, 3u, 8u})
        for (std::uint64_t const max_len : {std::uint64_t{300}, std::uint64_t{1500}}) {
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
    LaunchBounds bounds = balanced(1, 4096, 1);
    bounds.sm_count = 64;
    CHECK(planned(gmma_spec(8), bounds).cluster_size == 8);
    bounds.sm_count = 63;
    CHECK(planned(gmma_spec(8), bounds).cluster_size == 1);
}

TEST_CASE("gmma's clusters have an SM for each block, or half of one, tokens for each, and whole ones make the grid", "[plan]") {
    for (std::uint32_t const sm_count : {64u, 78u, 114u, 132u})
        for (std::uint32_t const heads : {1u, 2u, 8u, 24u})
            for (std::uint32_t batch = 1; batch <= 140; batch += 1 + batch / 6)
                for (std::uint64_t const max_len : {1, 127, 255, 256, 700, 1024, 1537, 3073, 6145, 70000, 1 << 20}) {
                    LaunchBounds bounds = balanced(batch, max_len, heads);
                    bounds.sm_count = sm_count;
                    LaunchPlan const plan = planned(gmma_spec(8), bounds);
                    std::uint64_t const units = std::uint64_t{batch} * heads, cluster = plan.cluster_size;
                    INFO(sm_count << " SMs, " << heads << " KV heads, " << batch << " x " << max_len << ": " << plan.to_string());
                    REQUIRE((cluster == 1 || cluster == 2 || cluster == 4 || cluster == 8));
                    CHECK(plan.grid_x % cluster == 0);
                    CHECK(plan.grid_x >= units * cluster);
                    if (cluster == 1) continue;
                    CHECK(units * cluster <= (cluster == 2 ? 2 : 1) * sm_count);
                    CHECK(max_len >= 128 * cluster);
                }
}

TEST_CASE("where every SM has a unit, gmma's extra parts only even out the lengths: a wave at most", "[plan]") {
    for (std::uint32_t const heads : {1u, 8u, 200u})
        for (std::uint32_t batch = 1; batch <= 2000; batch += 1 + batch / 8) {
            LaunchBounds const bounds = balanced(batch, 1 << 20, heads);
            LaunchPlan const plan = planned(gmma_spec(8), bounds);
            if (batch * heads < 2 * bounds.sm_count) continue;
            std::uint32_t const wave = std::max(1u, 2 * bounds.sm_count / heads);
            INFO(batch << " requests, " << heads << " KV heads: " << plan.to_string());
            CHECK(plan.nb_extra_parts == std::min(batch - 1, wave));
        }
}

TEST_CASE("gmma's blocks fit the shared memory of their GPU as often as they are meant to", "[plan][C06]") {
    constexpr std::pair<std::int32_t, std::uint32_t> kSplits[] = {
        {XQAJIT_DIVISION_STATIC, 0}, {XQAJIT_DIVISION_STATIC, 4}, {XQAJIT_DIVISION_BALANCED, 0}, {XQAJIT_DIVISION_INVARIANT, 0}};
    for (std::uint32_t const smem_optin : {101376u, 166912u, 232448u})
        for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
            for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
                for (std::uint32_t const group_size : {2u, 8u, 9u, 16u, 17u, 32u, 64u, 128u}) {
                    if (head_dim < 64 && group_size > device::kMostNarrowRows) continue;  // which gmma refuses
                    KernelSpec const spec = gmma_spec(group_size, head_dim, kv_dtype);
                    std::uint32_t const most = most_dynamic_smem(spec, smem_optin);
                    CHECK(static_smem(spec) + most <= smem_optin);
                    for (std::uint32_t const batch : {1u, 2u, 4u, 12u, 40u, 1000u})
                        for (auto const& [division, nb_sub_seq] : kSplits) {
                            LaunchBounds bounds = balanced(batch, 8192, 8);
                            bounds.smem_optin = smem_optin;
                            bounds.division = division;
                            bounds.nb_sub_seq = nb_sub_seq;
                            LaunchPlan const plan = planned(spec, bounds);
                            INFO(to_string(spec) << " on " << smem_optin << " bytes, batch " << batch << ": " << plan.to_string()
                                                 << ", " << plan.dynamic_smem << " bytes");
                            CHECK(plan.dynamic_smem <= most);
                            CHECK(plan.ring_items >= 2);
                            std::uint32_t const groups = groups_of(plan);
                            CHECK(groups * plan.ring_items <= std::max(device::kMostGmmaItems, 2 * groups));
                            if (smem_optin != 232448) continue;
                            bool const all = division == XQAJIT_DIVISION_INVARIANT || batch == 1000;
                            std::uint64_t per_sm = all ? shape_of(spec).blocks_an_sm : 1;
                            if (groups == 2) per_sm = 8 * batch > bounds.sm_count ? 2 : 1;  // large ones
                            CHECK(per_sm * (static_smem(spec) + plan.dynamic_smem + kReserved) <= smem_optin + kReserved);
                        }
                }
}

TEST_CASE("a gmma block that needs more shared memory than the device grants is refused with both numbers", "[plan][C06]") {
    for (std::uint32_t const head_dim : {16u, 80u, 128u, 144u, 256u})
        for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const group_size : {8u, 16u, 32u, 64u})
                for (std::uint32_t const batch : {1u, 7u, 100u})
                    for (std::int32_t const division : kDivisions) {
                        if (head_dim < 64 && group_size > device::kMostNarrowRows) continue;
                        KernelSpec const spec = gmma_spec(group_size, head_dim, kv_dtype);
                        LaunchBounds bounds = balanced(batch, 8192, 8);
                        bounds.division = division;
                        // Where two groups do not fit, one is taken.
                        bounds.smem_optin = 60000;
                        while (make_plan(spec, bounds).ok()) bounds.smem_optin -= 64;
                        for (Status const& status : {make_plan(spec, bounds).status(), workspace_size(spec, bounds).status()}) {
                            INFO(to_string(spec)
                                 << ", batch " << batch << ", " << division_name(division) << ": " << status.message());
                            CHECK(status.code() == XQAJIT_UNSUPPORTED);
                            CHECK(contains(status.message(), "bytes of shared memory"));
                            CHECK(contains(status.message(), "grants a block " + std::to_string(bounds.smem_optin)));
                        }
                    }
}
