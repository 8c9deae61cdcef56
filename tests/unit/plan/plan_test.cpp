#include <set>

#include "catch.h"
#include "common/work_division.h"
#include "launches.h"

using namespace xqajit;
using test::bounds_of;
using test::contains;
using test::gmma_spec;
using test::hmma_spec;
using test::kDivisions;
using test::mla_spec;
using test::mmha_spec;
using test::planned;

namespace {

// The bytes that an hmma or mmha kernel keeps of each row for the merge, as the device counts them.
std::uint64_t partial_bytes(KernelSpec const& spec) {
    return device::partial_floats(spec.m_tile, spec.head_dim_v) * std::uint64_t{4};
}

}  // namespace

TEST_CASE("the grid is one axis of part, KV head and row block, and holds the workspace that its partials need", "[plan]") {
    test::RandomLaunch random(1);
    for (int i = 0; i < 2000; ++i) {
        auto const [spec, bounds] = random.launch();
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok()) {
            CHECK(contains(plan.status().message(), "2147483647"));
            continue;
        }
        bool const balanced = bounds.division == XQAJIT_DIVISION_BALANCED;
        std::uint64_t const rows = std::uint64_t{bounds.q_len} * spec.group_size;
        CHECK(std::uint64_t{plan->nb_row_blocks} * spec.m_tile >= rows);
        CHECK(std::uint64_t{plan->nb_row_blocks - 1} * spec.m_tile < rows);
        std::uint64_t const blocks_of_part = std::uint64_t{spec.beam_width} * bounds.num_kv_heads * plan->nb_row_blocks;
        std::uint64_t const parts = balanced ? bounds.batch + plan->nb_extra_parts : std::uint64_t{bounds.batch} * plan->nb_sub_seq;
        CHECK(plan->grid_x == parts * blocks_of_part * plan->cluster_size);
        CHECK(plan->nb_sub_seq >= 1);
        CHECK((plan->nb_extra_parts == 0 || balanced));
        CHECK((plan->tokens_per_sub_seq == 0) == (bounds.division != XQAJIT_DIVISION_INVARIANT));
        // Nothing is kept where no request has two parts, and the counters of each level of the merge are one a slot and
        // block of a cluster.
        std::uint64_t const slots = balanced ? device::balanced_slots(plan->nb_extra_parts) : plan->nb_sub_seq == 1 ? 0 : parts;
        CHECK(plan->nb_slots == slots * blocks_of_part);
        CHECK((plan->nb_slots == 0) == (plan->nb_sub_seq == 1));
        std::uint64_t const counters = std::uint64_t{device::merge_levels(plan->nb_sub_seq)} * plan->nb_slots * plan->cluster_size;
        CHECK(plan->workspace_bytes == workspace_for(counters, plan->nb_slots * partial_bytes(spec)));
        CHECK((plan->workspace_bytes == 0) == (plan->nb_slots == 0));
    }
}

TEST_CASE("batches at and past the 65535 blocks of the other grid axes are planned", "[plan][W14]") {
    for (std::uint32_t const batch : {65535u, 65536u, 70000u}) {
        for (std::int32_t const division : kDivisions) {
            LaunchBounds bounds = bounds_of(batch, 64, 1);
            bounds.division = division;
            LaunchPlan const plan = planned(mmha_spec(8), bounds);
            CHECK(plan.grid_x == batch * 4);  // 8 rows, 2 a block
            CHECK(plan.nb_sub_seq == 1);
            CHECK(planned(hmma_spec(8), bounds).grid_x == batch);
            CHECK(planned(gmma_spec(8), bounds).grid_x == batch);
        }
        LaunchBounds many_heads = bounds_of(batch, 8192, 128);
        CHECK(planned(mmha_spec(1), many_heads).grid_x == batch * 128);
        many_heads.division = XQAJIT_DIVISION_BALANCED;
        LaunchPlan const balanced = planned(mmha_spec(1), many_heads);
        CHECK(balanced.grid_x == (batch + balanced.nb_extra_parts) * 128);
    }
}

TEST_CASE("a grid of more blocks than a launch can have is refused with both numbers", "[plan][W14]") {
    KernelSpec const spec = mmha_spec(1);
    LaunchBounds bounds = bounds_of(0x7fffffff, 1, 1);
    CHECK(planned(spec, bounds).grid_x == 0x7fffffff);
    bounds.batch = 0x80000000u;
    Status status;
    for (std::int32_t const division : kDivisions) {
        bounds.division = division;
        status = make_plan(spec, bounds).status();
        INFO(status.message());
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(status.message(), "batch 2147483648"));
        CHECK(contains(status.message(), "2147483647 blocks"));
        CHECK(workspace_size(spec, bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
    }

    // Every factor alone can be too much, and no product overflows on the way.
    for (std::int32_t const division : kDivisions) {
        bounds = bounds_of(0xffffffffu, UINT64_MAX, 0xffffffffu);
        bounds.q_len = 64;
        bounds.division = division;
        for (KernelSpec const& large : {mmha_spec(128), hmma_spec(128)})
            CHECK(make_plan(large, bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
    }
    bounds = bounds_of(1, UINT64_MAX, 1);
    bounds.division = XQAJIT_DIVISION_INVARIANT;
    status = make_plan(spec, bounds).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "36028797018963968 sub-sequences"));
    bounds.max_len = 0x7fffffff;
    CHECK(planned(spec, bounds).nb_sub_seq == 4194304);
    bounds.max_len = UINT64_MAX;
    bounds.division = XQAJIT_DIVISION_BALANCED;
    CHECK(planned(spec, bounds).nb_sub_seq == 132 * 4);  // one wave, however long
}

TEST_CASE("an empty batch plans no launch, and its shape is still checked", "[plan][C20]") {
    for (KernelSpec const& spec : {mmha_spec(8), hmma_spec(8), gmma_spec(8)})
        for (std::int32_t const division : kDivisions) {
            LaunchBounds bounds = bounds_of(0, 8192);
            bounds.division = division;
            LaunchPlan const plan = planned(spec, bounds);
            CHECK(plan.grid_x == 0);
            CHECK(plan.workspace_bytes == 0);
            CHECK(*workspace_size(spec, bounds) == 0);
            bounds.q_len = 65;
            CHECK(make_plan(spec, bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(workspace_size(spec, bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
        }
}

TEST_CASE("static division follows the reference's formula, each beam a request", "[plan]") {
    test::RandomLaunch random(2);
    for (int i = 0; i < 500; ++i) {
        auto [spec, bounds] = random.launch();
        bounds.division = XQAJIT_DIVISION_STATIC;
        bounds.nb_sub_seq = 0;
        std::uint32_t const requests = bounds.batch * spec.beam_width;
        std::uint32_t const n =
            spec.mla ? mla_sub_seqs(requests, bounds.max_len, bounds.sm_count)
            : spec.family != Family::kMmha
                ? hmma_kernel_sub_seqs(requests, bounds.num_kv_heads, bounds.max_len, bounds.sm_count)
                : std::min(decode_sub_seqs(requests, bounds.num_kv_heads, bounds.max_len, bounds.sm_count, kMaxSubSeq),
                           mmha_wave_sub_seqs(requests, bounds.num_kv_heads, bounds.sm_count));
        LaunchPlan const plan = planned(spec, bounds);
        CHECK(plan.nb_sub_seq == n);
        CHECK(plan.tokens_per_sub_seq == 0);
        CHECK(plan.nb_sub_seq <= std::max<std::uint64_t>(1, (bounds.max_len + 63) / 64));
    }
}

TEST_CASE("a forced number of sub-sequences is taken as it is", "[plan]") {
    for (std::uint32_t const n : {1u, 2u, 3u, 8u, 6000u}) {
        for (std::uint64_t const max_len : {0, 1, 8192}) {
            LaunchBounds bounds = bounds_of(4, max_len);
            bounds.nb_sub_seq = n;
            CHECK(planned(mmha_spec(8), bounds).nb_sub_seq == n);
            CHECK(planned(hmma_spec(8), bounds).nb_sub_seq == n);
            CHECK(planned(gmma_spec(8), bounds).nb_sub_seq == n);
            CHECK(planned(mla_spec(16), bounds).nb_sub_seq == n);
        }
    }
    LaunchBounds bounds = bounds_of(4, 8192);
    bounds.nb_sub_seq = 6001;
    Status const status = make_plan(mmha_spec(8), bounds).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "6001"));
    CHECK(contains(status.message(), "1..6000"));
}

TEST_CASE("invariant division and its blocks depend on neither batch nor heads nor GPU", "[plan][W34]") {
    for (KernelSpec const& spec : {mmha_spec(8), hmma_spec(8), hmma_spec(16, 64), hmma_spec(8, 256), hmma_spec(64), gmma_spec(8),
                                   gmma_spec(16, 256), gmma_spec(8, 16, XQAJIT_DTYPE_INT8), mla_spec(16)}) {
        for (std::uint64_t const max_len : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{kInvariantTokens},
                                            std::uint64_t{kInvariantTokens + 1}, std::uint64_t{100000}}) {
            std::uint64_t const edges = (max_len + kInvariantTokens - 1) / kInvariantTokens;
            std::set<std::uint32_t> blocks, smem;
            for (std::uint32_t const batch : {1u, 7u, 1000u})
                for (std::uint32_t const sm_count : {1u, 132u}) {
                    LaunchBounds bounds = bounds_of(batch, max_len, batch % 8 + 1);
                    bounds.division = XQAJIT_DIVISION_INVARIANT;
                    bounds.sm_count = sm_count;
                    LaunchPlan const plan = planned(spec, bounds);
                    CHECK(plan.nb_sub_seq == std::max<std::uint64_t>(edges, 1));
                    CHECK(plan.tokens_per_sub_seq == kInvariantTokens);
                    blocks.insert(plan.block_x);
                    smem.insert(plan.dynamic_smem);
                }
            CHECK(blocks.size() == 1);
            CHECK(smem.size() == 1);
        }
        LaunchBounds forced = bounds_of(1, 8192);
        forced.division = XQAJIT_DIVISION_INVARIANT;
        forced.nb_sub_seq = 4;
        CHECK(make_plan(spec, forced).status().code() == XQAJIT_INVALID_ARGUMENT);
        forced.division = XQAJIT_DIVISION_BALANCED;
        CHECK(contains(make_plan(spec, forced).status().message(), "nb_sub_seq is 4 under balanced division"));
    }
}

TEST_CASE("balanced division gives few requests one wave of blocks, more of them some parts, and short ones none", "[plan]") {
    struct Row {
        std::uint32_t batch, wave, most_parts, extra;
    };
    for (Row const& row : {Row{0, 132, 64, 0},
                           {1, 132, 64, 63},
                           {1, 132, 500, 131},
                           {2, 132, 64, 126},
                           {4, 132, 64, 128},
                           {131, 132, 64, 130},
                           {132, 132, 64, 131},
                           {200, 132, 64, 199},
                           {264, 132, 64, 263},
                           {265, 132, 64, 264},
                           {65536, 132, 64, 264},
                           {65536, 132, 1, 0},
                           {1, 1, 64, 0},
                           {3, 1, 64, 2},
                           {5, 1, 64, 2}}) {
        INFO(row.batch << " requests, " << row.wave << " a wave, up to " << row.most_parts << " parts");
        CHECK(balanced_extra_parts(row.batch, row.wave, row.most_parts) == row.extra);
    }
    // No request is given parts that its tokens cannot fill, and a GPU that is full already launches what it must.
    test::RandomLaunch random(7);
    for (int i = 0; i < 2000; ++i) {
        auto [spec, bounds] = random.launch();
        bounds.division = XQAJIT_DIVISION_BALANCED;
        bounds.nb_sub_seq = 0;
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok()) continue;
        std::uint64_t const granules = (bounds.max_len + device::kShareTokens - 1) / device::kShareTokens;
        CHECK(plan->nb_sub_seq <= std::max<std::uint64_t>(1, granules / device::kLeastGranules));
        CHECK(plan->nb_extra_parts <= std::uint64_t{bounds.batch} * (plan->nb_sub_seq - 1));
        CHECK(plan->nb_sub_seq <= plan->nb_extra_parts + 1);
    }
}

TEST_CASE("bounds and families that have no plan are refused by name", "[plan]") {
    LaunchBounds bounds = bounds_of(1, 8192);
    for (std::int32_t const division : {XQAJIT_DIVISION_DEFAULT + 0, 4, -1}) {
        bounds.division = division;
        CHECK(contains(make_plan(mmha_spec(8), bounds).status().message(), "division is " + std::to_string(division)));
        CHECK(make_plan(mmha_spec(8), bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
    }
    KernelSpec unbuilt = mmha_spec(8);
    unbuilt.family = Family::kMla;
    Status const no_plan = make_plan(unbuilt, bounds_of(1, 8192)).status();
    CHECK(no_plan.code() == XQAJIT_UNSUPPORTED);
    CHECK(contains(no_plan.message(), "mla"));
    for (KernelSpec const& spec : {mmha_spec(8), hmma_spec(8), gmma_spec(8)})
        for (std::uint32_t const q_len : {0u, 65u}) {
            bounds = bounds_of(1, 8192);
            bounds.q_len = q_len;
            Status const status = make_plan(spec, bounds).status();
            CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(contains(status.message(), "q_len is " + std::to_string(q_len)));
            CHECK(contains(status.message(), "1..64"));
        }
    CHECK(make_plan(mmha_spec(8), bounds_of(1, 8192, 0)).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("the default division is balanced, static where a number is asked for, and a named one stays", "[plan]") {
    CHECK(resolve_division(XQAJIT_DIVISION_DEFAULT, 0) == XQAJIT_DIVISION_BALANCED);
    CHECK(resolve_division(XQAJIT_DIVISION_DEFAULT, 4) == XQAJIT_DIVISION_STATIC);
    for (std::int32_t const division : kDivisions)
        for (std::uint32_t const nb_sub_seq : {0u, 4u}) CHECK(resolve_division(division, nb_sub_seq) == division);
}

TEST_CASE("a plan prints what it decided", "[plan][P01]") {
    for (std::int32_t const division : kDivisions) {
        LaunchBounds bounds = bounds_of(1, 8192);
        bounds.division = division;
        LaunchPlan const plan = planned(hmma_spec(8), bounds);
        for (std::uint64_t const number : {std::uint64_t{plan.grid_x}, std::uint64_t{plan.block_x}, std::uint64_t{plan.nb_sub_seq},
                                           std::uint64_t{plan.nb_row_blocks}, plan.workspace_bytes}) {
            CHECK(contains(plan.to_string(), std::to_string(number)));
            CHECK(contains(plan.to_json(), std::to_string(number)));
        }
        CHECK(contains(plan.to_json(), "\"nb_extra_parts\":" + std::to_string(plan.nb_extra_parts)));
        CHECK(contains(plan.to_json(), "\"dynamic_smem\":" + std::to_string(plan.dynamic_smem)));
    }
}
