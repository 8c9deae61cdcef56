// The shares that the device works out from a plan: the same header, compiled for the host.
#include "common/work_division.h"
#include "catch.h"
#include "launches.h"

using namespace xqajit;
using namespace xqajit::device;

namespace {

// Whether the shares of all sub-sequences, in order, are `visible` cut into pieces; none is empty where one block has each.
bool covers_once(Division division, std::uint32_t nb_sub_seq, TokenRange visible, std::uint32_t cluster_size = 1) {
    Granules const granules = granules_of(division, kInvariantTokens, visible);
    std::uint32_t const active = active_sub_seqs(granules, nb_sub_seq);
    if (active < 1 || active > nb_sub_seq) return false;
    std::uint32_t next = visible.begin;
    for (std::uint32_t i = 0; i < active * cluster_size; ++i) {
        TokenRange const share = sub_seq_range(division, granules, active * cluster_size, i, visible);
        if (share.begin > share.end) return false;
        bool const empty = share.begin == share.end;
        if (visible.begin < visible.end && (share.begin != next || (empty && cluster_size == 1))) return false;
        next = share.end;
    }
    return visible.begin >= visible.end || next == visible.end;
}

}  // namespace

TEST_CASE("every visible token belongs to exactly one sub-sequence", "[plan][W21]") {
    test::RandomLaunch random(5);
    for (int i = 0; i < 20000; ++i) {
        LaunchBounds const bounds = random.launch().bounds;
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
                for (Division const division : {Division::kStatic, Division::kBalanced})
                    for (std::uint32_t const cluster_size : {1u, 2u, 4u, kClusterBlocks})
                        if (!covers_once(division, nb_sub_seq, {begin, end}, cluster_size))
                            FAIL(begin << " " << end << " " << nb_sub_seq << " " << cluster_size);
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

TEST_CASE("the levels of a merge are those of a tree of its fan-in", "[plan]") {
    for (auto const& [partials, levels] : {std::pair{0u, 0u},
                                           {1u, 0u},
                                           {2u, 1u},
                                           {16u, 1u},
                                           {17u, 2u},
                                           {256u, 2u},
                                           {257u, 3u},
                                           {4096u, 3u},
                                           {6000u, 4u},
                                           {0xffffffffu, 8u}})
        CHECK(merge_levels(partials) == levels);
}

TEST_CASE("a balanced launch has a part for each of any lengths, and a place for each partial", "[plan][W21]") {
    test::RandomLaunch random(9);
    for (int i = 0; i < 3000; ++i) {
        auto [spec, bounds] = random.launch();
        bounds.division = XQAJIT_DIVISION_BALANCED;
        bounds.nb_sub_seq = 0;
        bounds.batch = static_cast<std::uint32_t>(1 + random.spread(600));
        Result<LaunchPlan> const plan = make_plan(spec, bounds);
        if (!plan.ok()) continue;
        std::uint32_t const extra = plan->nb_extra_parts;
        // Any lengths up to the bound: all alike, a few long ones, many empty ones, the start of a window.
        std::uint64_t const longest = random.spread(bounds.max_len + 1), kind = random.below(4);
        std::vector<TokenRange> visible(bounds.batch);
        std::vector<std::uint32_t> granules;
        std::uint64_t total = 0;
        for (TokenRange& range : visible) {
            std::uint64_t const length = kind == 0 ? longest : kind == 1 && random.below(8) != 0 ? 0 : random.spread(longest + 1);
            range.end = static_cast<std::uint32_t>(length);
            range.begin = static_cast<std::uint32_t>(kind == 3 ? random.below(length + 1) : 0);
            granules.push_back(granules_of(Division::kBalanced, 0, range).count);
            total += granules.back();
        }
        INFO(bounds.batch << " requests, " << extra << " extra parts, max_len " << bounds.max_len << ", longest " << longest);
        std::uint32_t const cluster = plan->cluster_size;
        std::uint64_t parts = 0, slots = 0;
        std::uint32_t most = 0;
        bool right = true;
        for (std::size_t request = 0; request < granules.size(); ++request) {
            std::uint32_t const own = balanced_parts(granules[request], total, extra, cluster);
            parts += own;
            slots += own > 1 ? own : 0;
            most = std::max(most, own);
            // In proportion, but for what rounding and the least size of a part take away.
            std::uint64_t const share = total == 0 ? 0 : std::uint64_t{granules[request]} * extra / total;
            std::uint64_t const bound = std::max<std::uint64_t>(1, granules[request] / (kLeastGranules * cluster));
            right = right && own == std::min(1 + share, bound);
            right = right && (own == 1 || granules[request] / own >= kLeastGranules * cluster);
            right = right && covers_once(Division::kBalanced, own, visible[request], cluster);
        }
        CHECK(right);
        CHECK(parts >= bounds.batch);
        CHECK(parts <= bounds.batch + extra);
        CHECK(slots <= balanced_slots(extra));
        CHECK(most <= plan->nb_sub_seq);
        CHECK(merge_levels(most) <= merge_levels(plan->nb_sub_seq));
    }
}

TEST_CASE("requests of one length have as many parts, and no part is wasted on them", "[plan]") {
    for (std::uint32_t const batch : {1u, 2u, 3u, 7u, 32u, 131u, 132u, 300u})
        for (std::uint32_t const extra : {0u, 1u, 5u, 131u, 264u})
            for (std::uint32_t const granules : {0u, 1u, 2u, 3u, 4u, 64u, 4096u}) {
                std::uint32_t const most = std::max(1u, granules / kLeastGranules);
                std::uint32_t const shared = granules == 0 ? 1 : (batch + extra) / batch;
                INFO(batch << " requests of " << granules << " granules, " << extra << " extra parts");
                CHECK(balanced_parts(granules, std::uint64_t{granules} * batch, extra, 1) == std::min(shared, most));
            }
}

TEST_CASE("a longer request never has fewer parts than a shorter one beside it", "[plan]") {
    test::RandomLaunch random(10);
    for (int i = 0; i < 5000; ++i) {
        auto const a = static_cast<std::uint32_t>(random.spread(40000)), b = a + static_cast<std::uint32_t>(random.spread(40000));
        std::uint64_t const total = std::uint64_t{a} + b + random.spread(1000000);
        auto const extra = static_cast<std::uint32_t>(random.spread(3000));
        CHECK(balanced_parts(a, total, extra, 1) <= balanced_parts(b, total, extra, 1));
    }
}

TEST_CASE("the longest range is covered without overflow", "[plan]") {
    for (std::uint32_t const end : {0x7fffffffu, 0x7fffffc0u})
        for (std::uint32_t const nb_sub_seq : {1u, 7u, 6000u}) CHECK(covers_once(Division::kStatic, nb_sub_seq, {0, end}));
    CHECK(covers_once(Division::kInvariant, 4194304, {0, 0x7fffffffu}));
    std::uint32_t const granules = granules_of(Division::kBalanced, 0, {0, 0x7fffffffu}).count;
    for (std::uint32_t const extra : {0u, 1000u, 0x7fffffffu}) {
        std::uint32_t const parts = balanced_parts(granules, std::uint64_t{granules} * 65536, extra, 1);
        CHECK(covers_once(Division::kBalanced, parts, {0, 0x7fffffffu}));
        CHECK(balanced_parts(granules, granules, extra, 1) == std::min(extra + 1, granules / kLeastGranules));
    }
}

TEST_CASE("dividing by a prepared divisor is dividing, for every value below 2^31", "[plan]") {
    std::mt19937 random(11);
    std::vector<std::uint32_t> divisors;
    for (std::uint32_t divisor = 1; divisor <= 4200; ++divisor) divisors.push_back(divisor);
    for (std::uint32_t bit = 12; bit < 31; ++bit) divisors.insert(divisors.end(), {(1u << bit) - 1, 1u << bit, (1u << bit) + 1});
    divisors.push_back(0x7fffffff);
    divisors.push_back(0x80000000);
    for (int i = 0; i < 2000; ++i) divisors.push_back(random() % 0x80000000u + 1);
    for (std::uint32_t const divisor : divisors) {
        Divisor const prepared = divisor_of(divisor);
        std::uint32_t const last = 0x7fffffffu / divisor * divisor;  // where the quotient changes for the last time
        std::vector<std::uint32_t> values{0, 1, divisor - 1, divisor & 0x7fffffffu, last, last == 0 ? 0 : last - 1, 0x7fffffff};
        for (int i = 0; i < 8; ++i) values.push_back(random() % 0x80000000u);
        for (std::uint32_t const value : values)
            if (divide(value, prepared) != value / divisor) FAIL(value << " / " << divisor);
    }
}
