#include "catch.h"
#include "kernel_src/common/contract.h"
#include "launches.h"

using namespace xqajit;
using test::bounds_of;
using test::mla_spec;
using test::mmha_spec;

namespace {

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

LaunchPlan planned(KernelSpec const& spec, LaunchBounds const& bounds) {
    Result<LaunchPlan> const plan = make_plan(spec, bounds);
    INFO(plan.status().message());
    REQUIRE(plan.ok());
    return *plan;
}

}  // namespace

TEST_CASE("the grid is one axis of request, beam, KV head, row block and sub-sequence", "[plan]") {
    test::RandomLaunch random(1);
    for (int i = 0; i < 2000; ++i) {
        KernelSpec const spec = random.spec();
        LaunchBounds const bounds = random.bounds();
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok()) {
            CHECK(contains(plan.status().message(), "2147483647"));
            continue;
        }
        std::uint64_t const rows = std::uint64_t{bounds.q_len} * spec.group_size;
        CHECK(plan->block_x == device::kMmhaThreads);
        CHECK(std::uint64_t{plan->nb_row_blocks} * spec.m_tile >= rows);
        CHECK(std::uint64_t{plan->nb_row_blocks - 1} * spec.m_tile < rows);
        CHECK(plan->units == std::uint64_t{bounds.batch} * spec.beam_width * bounds.num_kv_heads * plan->nb_row_blocks);
        CHECK(plan->grid_x == plan->units * plan->nb_sub_seq);
        std::uint64_t const floats = device::partial_floats(spec.m_tile, spec.head_dim_v);
        CHECK(plan->partial_bytes == (plan->nb_sub_seq == 1 ? 0 : plan->grid_x * floats * 4));
        CHECK((plan->workspace_bytes == 0) == (plan->nb_sub_seq == 1));
    }
}

TEST_CASE("batches at and past the 65535 blocks of the other grid axes are planned", "[plan][W14]") {
    for (std::uint32_t const batch : {65535u, 65536u, 70000u}) {
        LaunchPlan const plan = planned(mmha_spec(8), bounds_of(batch, 64, 1));
        CHECK(plan.grid_x == batch * 4);  // 8 rows, 2 a block
        CHECK(plan.nb_sub_seq == 1);
        LaunchPlan const many_heads = planned(mmha_spec(1), bounds_of(batch, 8192, 128));
        CHECK(many_heads.grid_x == batch * 128);
    }
}

TEST_CASE("a grid of more blocks than a launch can have is refused with both numbers", "[plan][W14]") {
    KernelSpec const spec = mmha_spec(1);
    LaunchBounds bounds = bounds_of(0x7fffffff, 1, 1);
    CHECK(planned(spec, bounds).grid_x == 0x7fffffff);
    bounds.batch = 0x80000000u;
    Status status = make_plan(spec, bounds).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "batch 2147483648"));
    CHECK(contains(status.message(), "2147483647 blocks"));
    CHECK(workspace_size(spec, bounds).status().code() == XQAJIT_INVALID_ARGUMENT);

    // Every factor alone can be too much, and no product overflows on the way.
    bounds = bounds_of(0xffffffffu, UINT64_MAX, 0xffffffffu);
    bounds.q_len = 64;
    bounds.division = XQAJIT_DIVISION_INVARIANT;
    CHECK(make_plan(mmha_spec(128), bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
    bounds = bounds_of(1, UINT64_MAX, 1);
    bounds.division = XQAJIT_DIVISION_INVARIANT;
    status = make_plan(spec, bounds).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "36028797018963968 sub-sequences"));
    bounds.max_len = 0x7fffffff;
    CHECK(planned(spec, bounds).nb_sub_seq == 4194304);
}

TEST_CASE("an empty batch plans no launch, and its shape is still checked", "[plan][C20]") {
    LaunchPlan const plan = planned(mmha_spec(8), bounds_of(0, 8192));
    CHECK(plan.grid_x == 0);
    CHECK(plan.workspace_bytes == 0);
    CHECK(*workspace_size(mmha_spec(8), bounds_of(0, 8192)) == 0);
    LaunchBounds bounds = bounds_of(0, 8192);
    bounds.q_len = 65;
    CHECK(make_plan(mmha_spec(8), bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("static division follows the reference's formula, each beam a request", "[plan]") {
    test::RandomLaunch random(2);
    for (int i = 0; i < 500; ++i) {
        KernelSpec const spec = random.spec();
        LaunchBounds bounds = random.bounds();
        bounds.division = XQAJIT_DIVISION_STATIC;
        bounds.nb_sub_seq = 0;
        std::uint32_t const requests = bounds.batch * spec.beam_width;
        std::uint32_t const n =
            spec.mla ? mla_sub_seqs(requests, bounds.max_len, bounds.sm_count)
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

TEST_CASE("invariant division depends on neither batch nor heads nor GPU", "[plan][W34]") {
    for (std::uint64_t const max_len : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{kInvariantTokens},
                                        std::uint64_t{kInvariantTokens + 1}, std::uint64_t{100000}}) {
        std::uint64_t const edges = (max_len + kInvariantTokens - 1) / kInvariantTokens;
        for (std::uint32_t const batch : {1u, 7u, 1000u})
            for (std::uint32_t const sm_count : {1u, 132u}) {
                LaunchBounds bounds = bounds_of(batch, max_len, batch % 8 + 1);
                bounds.division = XQAJIT_DIVISION_INVARIANT;
                bounds.sm_count = sm_count;
                LaunchPlan const plan = planned(mmha_spec(8), bounds);
                CHECK(plan.nb_sub_seq == std::max<std::uint64_t>(edges, 1));
                CHECK(plan.tokens_per_sub_seq == kInvariantTokens);
            }
    }
    LaunchBounds forced = bounds_of(1, 8192);
    forced.division = XQAJIT_DIVISION_INVARIANT;
    forced.nb_sub_seq = 4;
    CHECK(make_plan(mmha_spec(8), forced).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("what mmha cannot do is refused by name", "[plan]") {
    LaunchBounds bounds = bounds_of(1, 8192);
    bounds.division = XQAJIT_DIVISION_BALANCED;
    Status status = make_plan(mmha_spec(8), bounds).status();
    CHECK(status.code() == XQAJIT_UNSUPPORTED);
    CHECK(contains(status.message(), "division is balanced: mmha"));
    for (std::int32_t const division : {XQAJIT_DIVISION_DEFAULT + 0, 4, -1}) {
        bounds.division = division;
        CHECK(make_plan(mmha_spec(8), bounds).status().code() == XQAJIT_INVALID_ARGUMENT);
    }
    for (Family const family : {Family::kHmma, Family::kGmma, Family::kMla}) {
        KernelSpec spec = mmha_spec(8);
        spec.family = family;
        status = make_plan(spec, bounds_of(1, 8192)).status();
        CHECK(status.code() == XQAJIT_UNSUPPORTED);
        CHECK(contains(status.message(), family_name(family)));
    }
    for (std::uint32_t const q_len : {0u, 65u}) {
        bounds = bounds_of(1, 8192);
        bounds.q_len = q_len;
        status = make_plan(mmha_spec(8), bounds).status();
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(status.message(), "q_len is " + std::to_string(q_len)));
        CHECK(contains(status.message(), "1..64"));
    }
    CHECK(make_plan(mmha_spec(8), bounds_of(1, 8192, 0)).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("the default division is the family's own, static where a number is asked for, and a named one stays", "[plan]") {
    for (Family const family : kFamilies) {
        bool const balances = family != Family::kMmha;
        CHECK(family_divides(family, XQAJIT_DIVISION_BALANCED) == balances);
        CHECK(resolve_division(family, XQAJIT_DIVISION_DEFAULT, 0) ==
              (balances ? XQAJIT_DIVISION_BALANCED : XQAJIT_DIVISION_STATIC));
        CHECK(resolve_division(family, XQAJIT_DIVISION_DEFAULT, 4) == XQAJIT_DIVISION_STATIC);
        for (std::int32_t const division : {XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_INVARIANT})
            for (std::uint32_t const nb_sub_seq : {0u, 4u}) CHECK(resolve_division(family, division, nb_sub_seq) == division);
    }
}

TEST_CASE("a plan prints what it decided", "[plan]") {
    LaunchPlan const plan = planned(mmha_spec(8), bounds_of(1, 8192));
    for (std::string const& number :
         {std::to_string(plan.grid_x), std::to_string(plan.nb_sub_seq), std::to_string(plan.workspace_bytes)}) {
        CHECK(contains(plan.to_string(), number));
        CHECK(contains(plan.to_json(), number));
    }
}
