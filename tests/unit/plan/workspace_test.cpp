#include "catch.h"
#include "launches.h"

using namespace xqajit;
using test::bounds_of;
using test::mmha_spec;

namespace {

// As the definition reads: the least multiple of 256 that holds both.
std::uint64_t least_workspace(std::uint64_t units, std::uint64_t partial_bytes) {
    for (std::uint64_t bytes = 0;; bytes += 256) {
        if (bytes - counter_bytes(bytes) >= partial_bytes && counter_bytes(bytes) >= 4 * units) return bytes;
    }
}

}  // namespace

TEST_CASE("the workspace is the least that holds a counter a unit and the partials behind", "[plan][C14]") {
    for (std::uint64_t units = 0; units < 300; units += 1 + units / 40) {
        for (std::uint64_t partial_bytes :
             {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256}, std::uint64_t{7936}, std::uint64_t{7937}, std::uint64_t{8192},
              std::uint64_t{15872}, std::uint64_t{15873}, units * 160, units * 4160, units * 100000}) {
            INFO(units << " units, " << partial_bytes << " bytes");
            CHECK(workspace_for(units, partial_bytes) == least_workspace(units, partial_bytes));
        }
    }
}

TEST_CASE("counters lie before the partials of every launch that fits the workspace", "[plan][C15]") {
    // One workspace, sized for the largest of them, serves launches of any other shape.
    test::RandomLaunch random(3);
    std::vector<LaunchPlan> plans;
    std::uint64_t bytes = 0;
    for (int i = 0; i < 500; ++i) {
        Result<LaunchPlan> const plan = make_plan(random.spec(), random.bounds());
        if (!plan.ok() || plan->workspace_bytes > (std::uint64_t{1} << 40)) continue;
        plans.push_back(*plan);
        bytes = std::max(bytes, plan->workspace_bytes);
    }
    REQUIRE(plans.size() > 100);
    for (std::uint64_t const size : {bytes, bytes + 256, bytes * 3, bytes + 255}) {
        CHECK(counter_bytes(size) % 256 == 0);
        for (LaunchPlan const& plan : plans) {
            if (plan.nb_sub_seq == 1) continue;
            CHECK(4 * plan.units <= counter_bytes(size));
            CHECK(counter_bytes(size) + plan.partial_bytes <= size);
        }
    }
}

TEST_CASE("the size query covers every smaller launch, and one of them needs it all", "[plan][C14]") {
    test::RandomLaunch random(4);
    for (int i = 0; i < 1500; ++i) {
        KernelSpec const spec = random.spec();
        LaunchBounds const bounds = random.bounds();
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
            CHECK(plan->units == batch * beam * 6);
            CHECK(plan->workspace_bytes == *workspace_size(spec, bounds));
            CHECK(counter_bytes(plan->workspace_bytes) >= 4 * plan->units);
        }
}

TEST_CASE("a launch that is not divided needs no workspace", "[plan]") {
    LaunchBounds bounds = bounds_of(4, 1 << 20);
    bounds.nb_sub_seq = 1;
    CHECK(*workspace_size(mmha_spec(8), bounds) == 0);
    CHECK(*workspace_size(mmha_spec(8), bounds_of(4, 127)) == 0);
    CHECK(*workspace_size(mmha_spec(8), bounds_of(4, 256)) > 0);
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
