// What makes a launch slow, seen in its plan: SMs without work, a request that outlasts the others, padding, workspace that grows.
#include "catch.h"
#include "common/work_division.h"
#include "hmma/launch.h"
#include "launches.h"

using namespace xqajit;
using namespace xqajit::device;
using test::bounds_of;
using test::gmma_spec;
using test::hmma_spec;
using test::mmha_spec;
using test::planned;

namespace {

LaunchBounds balanced(std::uint32_t batch, std::uint64_t max_len, std::uint32_t num_kv_heads = 8) {
    LaunchBounds bounds = bounds_of(batch, max_len, num_kv_heads);
    bounds.division = XQAJIT_DIVISION_BALANCED;
    return bounds;
}

// Parts of each request, as the device works them out.
std::vector<std::uint32_t> parts_of(LaunchPlan const& plan, std::vector<std::uint32_t> const& lens) {
    std::uint64_t total = 0;
    for (std::uint32_t const len : lens) total += granules_of(Division::kBalanced, 0, {0, len}).count;
    std::vector<std::uint32_t> parts;
    for (std::uint32_t const len : lens)
        parts.push_back(
            balanced_parts(granules_of(Division::kBalanced, 0, {0, len}).count, total, plan.nb_extra_parts, plan.cluster_size));
    return parts;
}

// Tokens of the longest part of a request.
std::uint32_t longest_part(std::uint32_t len, std::uint32_t parts) {
    Granules const granules = granules_of(Division::kBalanced, 0, {0, len});
    TokenRange const first = sub_seq_range(Division::kBalanced, granules, parts, 0, {0, len});
    return first.end - first.begin;
}

// Blocks of one wave where units are few: those of the tensor cores are large.
std::uint32_t blocks_at_once(KernelSpec const& spec, LaunchBounds const& bounds) {
    return bounds.sm_count * (spec.family == Family::kMmha ? kMostBlocksAnSm : 1);
}

// And in clusters: of hmma's half of those that SMs would hold surely run at once.
std::uint32_t blocks_at_once_in_clusters(LaunchBounds const& bounds, std::uint32_t cluster) {
    return bounds.sm_count / (2 * cluster) * cluster;
}

std::vector<std::uint64_t> many_lengths() {
    std::vector<std::uint64_t> lens;
    for (std::uint64_t len = 1; len <= 2100; ++len) lens.push_back(len);
    for (std::uint64_t len = 4096; len <= 1 << 20; len *= 2) lens.insert(lens.end(), {len - 1, len, len + 1});
    return lens;
}

}  // namespace

TEST_CASE("few units are divided at every length that fills two parts, as far as a wave of blocks goes", "[plan][P01]") {
    for (KernelSpec const& spec : {hmma_spec(8), mmha_spec(8), hmma_spec(8, 256)})
        for (bool const has_clusters : {false, true})
            for (std::uint32_t const heads : {1u, 8u})
                for (std::uint64_t const len : many_lengths()) {
                    LaunchBounds bounds = balanced(1, len, heads);
                    bounds.has_clusters = has_clusters;
                    LaunchPlan const plan = planned(spec, bounds);
                    std::uint32_t const parts = parts_of(plan, {static_cast<std::uint32_t>(len)})[0];
                    INFO(to_string(spec) << ", " << heads << " KV heads of " << len << " tokens: " << plan.to_string());
                    // No block of the grid is left without a part.
                    if (plan.grid_x != parts * plan.cluster_size * heads * plan.nb_row_blocks) FAIL(parts << " parts");
                    // One part more would not fit the wave, or leave a block less than two granules.
                    std::uint32_t const granules = granules_of(Division::kBalanced, 0, {0, static_cast<std::uint32_t>(len)}).count;
                    std::uint32_t const wave = plan.cluster_size > 1 ? blocks_at_once_in_clusters(bounds, plan.cluster_size)
                                                                     : blocks_at_once(spec, bounds);
                    bool const is_full = (parts + 1) * plan.cluster_size * heads > wave;
                    bool const is_short = granules < (parts + 1) * plan.cluster_size * kLeastGranules;
                    if (!is_full && !is_short) FAIL("a part is missing");
                    if (granules >= 2 * kLeastGranules && parts * plan.cluster_size < 2) FAIL("undivided");
                }
}

// Its clusters leave some SMs without a block where that is faster than a merge through global memory.
TEST_CASE("gmma's few units are divided over half as many blocks as there could be, or more", "[plan][P01]") {
    for (KernelSpec const& spec : {gmma_spec(8), gmma_spec(8, 256)})
        for (bool const has_clusters : {false, true})
            for (std::uint32_t const heads : {1u, 2u, 8u, 16u})
                for (std::uint64_t const len : many_lengths()) {
                    LaunchBounds bounds = balanced(1, len, heads);
                    bounds.has_clusters = has_clusters;
                    LaunchPlan const plan = planned(spec, bounds);
                    std::uint32_t const parts = parts_of(plan, {static_cast<std::uint32_t>(len)})[0];
                    INFO(to_string(spec) << ", " << heads << " KV heads of " << len << " tokens: " << plan.to_string());
                    std::uint32_t const blocks = parts * plan.cluster_size;
                    if (plan.grid_x != blocks * heads) FAIL(parts << " parts");
                    std::uint64_t const useful =
                        std::min<std::uint64_t>(bounds.sm_count / heads, len / (kLeastGranules * kShareTokens));
                    if (2 * blocks < useful) FAIL("of " << useful << " blocks");
                    if (useful >= 2 && blocks < 2) FAIL("undivided");
                }
}

TEST_CASE("parts follow the lengths that are there, whatever max_len allows", "[plan][P02]") {
    for (KernelSpec const& spec : {hmma_spec(8), gmma_spec(8), mmha_spec(8)})
        for (std::uint32_t const batch : {1u, 2u, 4u, 16u, 64u, 300u})
            for (std::uint32_t const len : {1u, 192u, 300u, 2000u, 8192u}) {
                std::vector<std::uint32_t> const lens(batch, len);
                LaunchPlan const tight = planned(spec, balanced(batch, len));
                LaunchPlan const loose = planned(spec, balanced(batch, 131072));
                INFO(to_string(spec) << ", " << batch << " of " << len << " tokens: " << tight.to_string() << " and "
                                     << loose.to_string());
                if (spec.family == Family::kGmma) {  // which takes clusters in the place of parts for short bounds
                    CHECK(2 * parts_of(loose, lens)[0] * loose.cluster_size >= parts_of(tight, lens)[0] * tight.cluster_size);
                } else {
                    CHECK(parts_of(loose, lens) == parts_of(tight, lens));
                }
                CHECK(loose.block_x == tight.block_x);
                // The blocks that then find nothing to do are a wave or the requests' number at most, and no more for any bound above.
                std::uint32_t const blocks_of_part = 8 * loose.nb_row_blocks;
                CHECK(loose.nb_extra_parts <= std::max(blocks_at_once(spec, balanced(batch, len)) / 8, batch - 1));
                CHECK(loose.grid_x == (batch + loose.nb_extra_parts) * blocks_of_part * loose.cluster_size);
                CHECK(planned(spec, balanced(batch, std::uint64_t{1} << 30)).grid_x == loose.grid_x);
            }
}

TEST_CASE("one long request among short ones gets the parts, and none of them outlasts an SM's share", "[plan][P04]") {
    struct Row {
        std::uint32_t batch, longest, shorter, num_kv_heads;
    };
    for (KernelSpec const& spec : {hmma_spec(8), gmma_spec(8), mmha_spec(8)})
        for (Row const& row : {Row{32, 131072, 512, 8},
                               {32, 131072, 512, 1},
                               {32, 131072, 1, 8},
                               {16, 131072, 512, 8},
                               {4, 32768, 64, 8},
                               {64, 131072, 512, 4},
                               {256, 131072, 512, 8}}) {
            LaunchBounds const bounds = balanced(row.batch, row.longest, row.num_kv_heads);
            LaunchPlan const plan = planned(spec, bounds);
            std::vector<std::uint32_t> lens(row.batch, row.shorter);
            lens[row.batch / 2] = row.longest;
            std::vector<std::uint32_t> const parts = parts_of(plan, lens);
            std::uint64_t total = 0;
            for (std::uint32_t const len : lens) total += len;
            std::uint64_t const share = total * row.num_kv_heads / bounds.sm_count;
            std::uint32_t const of_long = parts[row.batch / 2];
            INFO(to_string(spec) << ", " << row.longest << " beside " << row.batch - 1 << " of " << row.shorter << ", "
                                 << row.num_kv_heads << " KV heads: " << of_long << " parts, an SM's share is " << share
                                 << " tokens, " << plan.to_string());
            CHECK(of_long * total >= std::uint64_t{plan.nb_extra_parts} * row.longest);  // its share of them
            CHECK(2 * std::uint64_t{longest_part(row.longest, of_long)} <= 3 * share);
        }
}

TEST_CASE("8-bit KV is divided as 16-bit KV, by blocks that take as many tokens at once or more", "[plan][P06]") {
    for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
        for (auto const& [group_size, q_len] : {std::pair{4u, 1u}, {8u, 1u}, {16u, 1u}, {8u, 4u}, {8u, 8u}}) {
            KernelSpec const wide = hmma_spec(group_size, head_dim, XQAJIT_DTYPE_BF16, q_len);
            // Tokens in flight on an SM: of each warp's or team's steps.
            auto const tokens_at_once = [](HmmaShape const& shape) {
                return shape.max_threads / 32 / shape.team_warps * shape.tile_tokens * std::max(shape.stages, 1u);
            };
            HmmaShape const wide_shape = hmma_shape(head_dim, 2, wide.m_tile);
            for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8}) {
                KernelSpec const narrow = hmma_spec(group_size, head_dim, kv_dtype, q_len);
                INFO(to_string(narrow));
                CHECK(narrow.m_tile == wide.m_tile);
                HmmaShape const narrow_shape = hmma_shape(head_dim, 1, narrow.m_tile);
                CHECK(narrow_shape.tile_tokens >= wide_shape.tile_tokens);
                CHECK(tokens_at_once(narrow_shape) >= tokens_at_once(wide_shape));
                CHECK(narrow_shape.max_threads >= wide_shape.max_threads);
                for (std::uint32_t const batch : {1u, 8u, 64u})
                    for (std::uint64_t const max_len : {std::uint64_t{1000}, std::uint64_t{8192}, std::uint64_t{100000}}) {
                        LaunchBounds bounds = balanced(batch, max_len);
                        bounds.q_len = q_len;
                        LaunchPlan const a = planned(wide, bounds), b = planned(narrow, bounds);
                        CHECK(a.nb_sub_seq == b.nb_sub_seq);
                        CHECK(a.nb_extra_parts == b.nb_extra_parts);
                        CHECK(a.grid_x == b.grid_x);
                        CHECK(a.workspace_bytes == b.workspace_bytes);
                    }
            }
        }
}

TEST_CASE("a KV head's tokens are read once for all its query rows, in a tile that is not padded past the next size",
          "[plan][P09]") {
    for (std::uint32_t const head_dim : {64u, 128u})
        for (auto const& [group_size, q_len] : {std::pair{1u, 1u},
                                                {1u, 8u},
                                                {2u, 1u},
                                                {4u, 1u},
                                                {5u, 1u},
                                                {8u, 1u},
                                                {9u, 1u},
                                                {16u, 1u},
                                                {4u, 7u},
                                                {8u, 4u},
                                                {33u, 1u},
                                                {8u, 8u},
                                                {1u, 64u}}) {
            KernelSpec const spec = hmma_spec(group_size, head_dim, XQAJIT_DTYPE_BF16, q_len);
            LaunchBounds bounds = balanced(16, 4000, 32);
            bounds.q_len = q_len;
            LaunchPlan const plan = planned(spec, bounds);
            std::uint32_t const rows = group_size * q_len;
            INFO(to_string(spec) << ", " << rows << " rows: " << plan.to_string());
            CHECK(plan.nb_row_blocks == 1);
            CHECK(plan.grid_x == (16 + plan.nb_extra_parts) * 32);
            CHECK(spec.m_tile >= rows);
            CHECK((spec.m_tile == 8 || spec.m_tile < 2 * rows));
        }
    // Plain MHA has a tile of its one row, and no product is made for any other.
    CHECK(mmha_spec(1).m_tile == 1);
    CHECK(planned(mmha_spec(1), balanced(16, 4000, 32)).nb_row_blocks == 1);
}

TEST_CASE("workspace stops growing at two waves of requests, so that one serves every captured batch size", "[plan][P13]") {
    constexpr std::uint64_t kMaxLen = 131072;
    for (KernelSpec const& spec : {hmma_spec(8), gmma_spec(8), mmha_spec(8), hmma_spec(64, 256), mmha_spec(1)})
        for (std::uint32_t const heads : {1u, 8u}) {
            std::uint32_t const waves = 2 * kMostBlocksAnSm * bounds_of(1, 1).sm_count / heads;
            std::uint64_t const most = *workspace_size(spec, balanced(65536, kMaxLen, heads));
            INFO(to_string(spec) << ", " << heads << " KV heads: " << most << " bytes");
            CHECK(most > 0);
            CHECK(*workspace_size(spec, balanced(waves + 1, kMaxLen, heads)) == most);
            for (std::uint32_t const batch : {waves + 1, 2 * waves, 10 * waves})
                CHECK(planned(spec, balanced(batch, kMaxLen, heads)).workspace_bytes ==
                      planned(spec, balanced(65536, kMaxLen, heads)).workspace_bytes);
            for (std::uint32_t batch = 1; batch <= 2 * waves; batch += 1 + batch / 16)
                CHECK(planned(spec, balanced(batch, kMaxLen, heads)).workspace_bytes <= most);
        }
}

TEST_CASE("live requests of a padded batch have at least half the parts of a launch of their own, and all beyond two waves",
          "[plan][P13]") {
    constexpr std::uint32_t kMaxLen = 32768;
    for (KernelSpec const& spec : {hmma_spec(8), gmma_spec(8), mmha_spec(8)})
        for (std::uint32_t const heads : {1u, 8u})
            for (std::uint32_t const captured : {2u, 8u, 16u, 66u, 128u, 300u, 1200u})
                for (std::uint32_t const live : {1u, 2u, 6u, 20u, 64u, 128u})
                    for (std::uint32_t const len : {300u, 4096u, kMaxLen}) {
                        if (live > captured) continue;
                        std::vector<std::uint32_t> lens(live, len);
                        std::uint32_t const alone = parts_of(planned(spec, balanced(live, kMaxLen, heads)), lens)[0];
                        lens.resize(captured);
                        std::vector<std::uint32_t> const padded = parts_of(planned(spec, balanced(captured, kMaxLen, heads)), lens);
                        INFO(to_string(spec) << ", " << heads << " KV heads, " << live << " of " << captured << " requests, " << len
                                             << " tokens");
                        CHECK(2 * padded[0] >= alone);
                        if (captured >= 2 * blocks_at_once(spec, balanced(1, 1)) / heads) CHECK(padded[0] >= alone);
                        CHECK((live == captured || padded[captured - 1] == 1));
                    }
}
