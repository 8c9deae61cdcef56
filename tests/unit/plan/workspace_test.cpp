#include "catch.h"
#include "common/work_division.h"
#include "launches.h"
#include "plan/blocks.h"

using namespace xqajit;
using test::bounds_of;
using test::gmma_spec;
using test::hmma_spec;
using test::mmha_spec;

namespace {

// As the definition reads: the least multiple of 256 that holds both.
std::uint64_t least_workspace(std::uint64_t nb_counters, std::uint64_t partial_bytes) {
    for (std::uint64_t bytes = 0;; bytes += 256) {
        if (bytes - counter_bytes(bytes) >= partial_bytes && counter_bytes(bytes) >= 4 * nb_counters) return bytes;
    }
}

std::uint64_t partials_of(LaunchPlan const& plan, KernelSpec const& spec) {
    return std::uint64_t{plan.nb_slots} * device::partial_floats(spec.m_tile, spec.head_dim_v) * 4;
}

std::uint64_t counters_of(LaunchPlan const& plan) {
    return std::uint64_t{plan.nb_slots} * device::merge_levels(plan.nb_sub_seq) * plan.cluster_size;
}

}  // namespace

TEST_CASE("the workspace is the least that holds the counters and the partials behind", "[plan][C14]") {
    for (std::uint64_t counters = 0; counters < 300; counters += 1 + counters / 40) {
        for (std::uint64_t partial_bytes :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{7936}, std::uint64_t{7937}, std::uint64_t{8192},
              std::uint64_t{15872}, std::uint64_t{15873}, counters * 80, counters * 4160, counters * 100000}) {
            INFO(counters << " counters, " << partial_bytes << " bytes");
            CHECK(workspace_for(counters, partial_bytes) == least_workspace(counters, partial_bytes));
        }
    }
}

TEST_CASE("counters lie before the partials of every launch that fits the workspace", "[plan][C15]") {
    // One workspace, sized for the largest of them, serves launches of any other shape.
    test::RandomLaunch random(3);
    std::vector<std::pair<LaunchPlan, KernelSpec>> launches;
    std::uint64_t bytes = 0;
    for (int i = 0; i < 800; ++i) {
        auto const [spec, bounds] = random.launch();
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok() || plan->workspace_bytes > (std::uint64_t{1} << 40)) continue;
        launches.emplace_back(*plan, spec);
        bytes = std::max(bytes, plan->workspace_bytes);
        std::uint64_t const own = plan->workspace_bytes;  // the least that is right for it alone
        CHECK(4 * counters_of(*plan) <= counter_bytes(own));
        CHECK(counter_bytes(own) + partials_of(*plan, spec) <= own);
    }
    REQUIRE(launches.size() > 100);
    for (std::uint64_t const size : {bytes, bytes + 256, bytes * 3, bytes + 255}) {
        CHECK(counter_bytes(size) % 256 == 0);
        for (auto const& [plan, spec] : launches) {
            CHECK(4 * counters_of(plan) <= counter_bytes(size));
            CHECK(counter_bytes(size) + partials_of(plan, spec) <= size);
        }
    }
}

TEST_CASE("the size query of balanced division covers every smaller launch, and one of them needs it all", "[plan][C14]") {
    test::RandomLaunch random(8);
    for (int i = 0; i < 150; ++i) {
        auto [spec, bounds] = random.launch();
        bounds.division = XQAJIT_DIVISION_BALANCED;
        bounds.nb_sub_seq = 0;
        bounds.q_len = static_cast<std::uint32_t>(1 + random.below(random.below(2) == 0 ? 6 : 1));
        bounds.batch = static_cast<std::uint32_t>(1 + random.spread(1500));
        Result<std::uint64_t> const size = workspace_size(spec, bounds);
        if (!size.ok()) {
            CHECK(size.status().code() == XQAJIT_INVALID_ARGUMENT);
            continue;
        }
        INFO(to_string(spec) << " batch " << bounds.batch << " len " << bounds.max_len << " q_len " << bounds.q_len << " heads "
                             << bounds.num_kv_heads << " SMs " << bounds.sm_count);
        std::uint64_t most = 0;
        LaunchBounds at = bounds;
        for (std::uint64_t const length : gmma_lengths_of_most_parts(bounds.max_len)) {  // no other family's size shrinks with it
            at.max_len = length;
            for (at.q_len = 1; at.q_len <= bounds.q_len; ++at.q_len)
                for (at.batch = 0; at.batch <= bounds.batch; ++at.batch)
                    most = std::max(most, make_plan(spec, at)->workspace_bytes);
        }
        CHECK(*size == most);
        for (int j = 0; j < 200; ++j) {
            at.batch = static_cast<std::uint32_t>(random.below(bounds.batch + 1));
            at.max_len = random.spread(bounds.max_len + 1);
            at.q_len = static_cast<std::uint32_t>(1 + random.below(bounds.q_len));
            CHECK(make_plan(spec, at)->workspace_bytes <= *size);
        }
    }
}

TEST_CASE("the size query of the other divisions covers every smaller launch, and one of them needs it all", "[plan][C14]") {
    test::RandomLaunch random(4);
    for (int i = 0; i < 1500; ++i) {
        auto const [spec, bounds] = random.launch();
        if (bounds.division == XQAJIT_DIVISION_BALANCED) continue;
        Result<std::uint64_t> const size = workspace_size(spec, bounds);
        if (!size.ok()) {
            CHECK(size.status().code() == XQAJIT_INVALID_ARGUMENT);
            continue;
        }
        INFO("batch " << bounds.batch << " len " << bounds.max_len << " heads " << bounds.num_kv_heads << " beam "
                      << spec.beam_width);
        std::uint64_t most = 0;
        LaunchBounds at = bounds;
        for (at.batch = 0; at.batch <= bounds.batch; ++at.batch) most = std::max(most, make_plan(spec, at)->workspace_bytes);
        CHECK(*size == most);
        for (int j = 0; j < 20; ++j) {
            at.batch = static_cast<std::uint32_t>(random.below(bounds.batch + 1));
            at.max_len = random.below(bounds.max_len + 1);
            at.q_len = static_cast<std::uint32_t>(1 + random.below(bounds.q_len));
            CHECK(make_plan(spec, at)->workspace_bytes <= *size);
        }
    }
}

TEST_CASE("beams count as requests in the size", "[plan][C14]") {
    for (std::uint32_t const beam : {2u, 4u})
        for (std::uint32_t const batch : {8u, 16u, 32u}) {
            KernelSpec spec = mmha_spec(1);
            spec.beam_width = beam;
            LaunchBounds bounds = bounds_of(batch, 4096, 6);
            bounds.sm_count = 148;
            bounds.nb_sub_seq = 2;
            Result<LaunchPlan> const plan = make_plan(spec, bounds);
            REQUIRE(plan.ok());
            CHECK(plan->nb_slots == batch * beam * 6 * 2);
            CHECK(plan->workspace_bytes == *workspace_size(spec, bounds));
            CHECK(counter_bytes(plan->workspace_bytes) >= 4 * plan->nb_slots);
        }
}

TEST_CASE("a launch that is not divided needs no workspace", "[plan]") {
    LaunchBounds bounds = bounds_of(4, 1 << 20);
    bounds.nb_sub_seq = 1;
    CHECK(*workspace_size(mmha_spec(8), bounds) == 0);
    CHECK(*workspace_size(mmha_spec(8), bounds_of(4, 127)) == 0);
    CHECK(*workspace_size(mmha_spec(8), bounds_of(4, 256)) > 0);
    for (KernelSpec const& spec : {mmha_spec(8), hmma_spec(8), gmma_spec(8)}) {
        bounds = bounds_of(4, 255);  // a part of a balanced launch has two granules of 64 tokens at least
        bounds.division = XQAJIT_DIVISION_BALANCED;
        CHECK(*workspace_size(spec, bounds) > 0);
        bounds.max_len = 192;
        CHECK(*workspace_size(spec, bounds) == 0);
    }
}

TEST_CASE("the worst batch need not be the largest", "[plan][C14]") {
    // The formula stops dividing long before 65536 requests, so the whole batch alone would ask for nothing.
    LaunchBounds const bounds = bounds_of(65536, 8192);
    CHECK(make_plan(mmha_spec(8), bounds)->workspace_bytes == 0);
    std::uint32_t last_divided = 1;
    while (make_plan(mmha_spec(8), bounds_of(last_divided + 1, 8192))->nb_sub_seq > 1) ++last_divided;
    CHECK(last_divided < 65536);
    CHECK(*workspace_size(mmha_spec(8), bounds) > 0);
    CHECK(*workspace_size(mmha_spec(8), bounds) == *workspace_size(mmha_spec(8), bounds_of(last_divided, 8192)));
}

TEST_CASE("a workspace serves every shorter launch, also of lengths between which blocks are shaped anew", "[plan][C14]") {
    bool needs_more_than_its_own = false;
    // Of small heads a cluster's counters count too.
    for (KernelSpec const& spec : {gmma_spec(8), gmma_spec(8, 16), hmma_spec(8, 64), hmma_spec(8, 16)})
        for (auto const& [heads, batch] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
                 {1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {2, 4}, {2, 8}, {8, 1}, {8, 2}, {8, 4}, {8, 8}}) {
            std::uint64_t most = 0;
            for (std::uint64_t middle = 128; middle <= 8192; middle += 128)
                for (std::uint64_t const max_len : {middle - 1, middle, middle + 1}) {
                    LaunchBounds bounds = bounds_of(batch, max_len, heads);
                    bounds.division = XQAJIT_DIVISION_BALANCED;
                    bounds.has_clusters = true;
                    std::uint64_t const size = *workspace_size(spec, bounds);
                    std::uint64_t const own = make_plan(spec, bounds)->workspace_bytes;
                    INFO(to_string(spec) << ", " << batch << " x " << max_len << ", " << heads << " KV heads");
                    most = std::max(most, own);
                    CHECK(most <= size);
                    needs_more_than_its_own |= own < size;
                }
        }
    CHECK(needs_more_than_its_own);
}
