// The shares that the device works out from a plan: the same header, compiled for the host.
#include "common/work_division.h"
#include "catch.h"
#include "launches.h"

using namespace xqajit;
using namespace xqajit::device;

namespace {

// Whether the shares of all sub-sequences, in order, are `visible` cut into pieces.
bool covers_once(Division division, std::uint32_t nb_sub_seq, TokenRange visible) {
    Granules const granules = granules_of(division, kInvariantTokens, visible);
    std::uint32_t const active = active_sub_seqs(granules, nb_sub_seq);
    if (active < 1 || active > nb_sub_seq) return false;
    std::uint32_t next = visible.begin;
    for (std::uint32_t i = 0; i < active; ++i) {
        TokenRange const share = sub_seq_range(division, granules, active, i, visible);
        if (visible.begin < visible.end && (share.begin != next || share.end <= share.begin)) return false;
        next = share.end;
    }
    return visible.begin >= visible.end || next == visible.end;
}

}  // namespace

TEST_CASE("every visible token belongs to exactly one sub-sequence", "[plan][W21]") {
    test::RandomLaunch random(5);
    for (int i = 0; i < 20000; ++i) {
        LaunchBounds const bounds = random.bounds();
        Result<LaunchPlan> const plan = make_plan(test::mmha_spec(1), bounds);
        if (!plan.ok()) continue;
        // Any length up to the bound, the window's start included.
        auto const end = static_cast<std::uint32_t>(random.below(bounds.max_len + 1));
        auto const begin = static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(end + std::uint64_t{1}) : 0);
        auto const division = static_cast<Division>(bounds.division);
        if (!covers_once(division, plan->nb_sub_seq, {begin, end}))
            FAIL("[" << begin << ", " << end << ") in " << plan->nb_sub_seq << " under division " << bounds.division);
    }
}

TEST_CASE("short ranges are covered at every length and number of sub-sequences", "[plan][W21]") {
    for (std::uint32_t end = 0; end < 1200; ++end)
        for (std::uint32_t const nb_sub_seq : {1u, 2u, 3u, 8u, 50u})
            for (std::uint32_t const window : {0u, 1u, 64u, 100u}) {
                std::uint32_t const begin = window != 0 && window < end ? end - window : 0;
                if (!covers_once(Division::kStatic, nb_sub_seq, {begin, end})) FAIL(begin << " " << end << " " << nb_sub_seq);
            }
}

TEST_CASE("under invariant division a request's edges depend on neither the bound nor its neighbours", "[plan][W34][W35]") {
    for (std::uint32_t const end : {1u, 511u, 512u, 513u, 8192u, 8193u})
        for (std::uint32_t const nb_sub_seq : {(end + kInvariantTokens - 1) / kInvariantTokens, 100u, 256u}) {
            Granules const granules = granules_of(Division::kInvariant, kInvariantTokens, {0, end});
            std::uint32_t const active = active_sub_seqs(granules, nb_sub_seq);
            CHECK(active == (end + kInvariantTokens - 1) / kInvariantTokens);
            for (std::uint32_t i = 0; i < active; ++i) {
                TokenRange const share = sub_seq_range(Division::kInvariant, granules, active, i, {0, end});
                CHECK(share.begin == i * kInvariantTokens);
                CHECK(share.end == std::min(end, (i + 1) * kInvariantTokens));
            }
        }
}

TEST_CASE("the longest range is covered without overflow", "[plan]") {
    for (std::uint32_t const end : {0x7fffffffu, 0x7fffffc0u})
        for (std::uint32_t const nb_sub_seq : {1u, 7u, 6000u}) CHECK(covers_once(Division::kStatic, nb_sub_seq, {0, end}));
    CHECK(covers_once(Division::kInvariant, 4194304, {0, 0x7fffffffu}));
}
