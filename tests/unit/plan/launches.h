// Specs and bounds that the planner's tests start from.
#pragma once

#include <random>

#include "catch.h"
#include "kernel_src/gmma/launch.h"
#include "plan/plan.h"
#include "unit/select/shapes.h"

namespace xqajit::test {

// The kernel of a family that serves heads of such a size and such groups of them, with a draft where q_len is above 1.
inline KernelSpec spec_of(Family family, XQAParams shape, std::uint32_t group_size, std::uint32_t q_len, ArchFacts const& on) {
    shape.num_q_heads = shape.num_kv_heads * group_size;
    shape.q_len = q_len;
    if (q_len > 1) shape.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    return make_spec(family, shape, on);
}

inline KernelSpec mmha_spec(std::uint32_t group_size) { return spec_of(Family::kMmha, gqa_shape(), group_size, 1, arch("sm_90a")); }

inline KernelSpec mla_spec(std::uint32_t group_size, std::uint32_t q_len = 1) {
    return spec_of(Family::kMmha, mla_shape(), group_size, q_len, arch("sm_90a"));
}

inline KernelSpec hmma_spec(std::uint32_t group_size, std::uint32_t head_dim = 128, std::int32_t kv_dtype = XQAJIT_DTYPE_BF16,
                            std::uint32_t q_len = 1, ArchFacts const& on = arch("sm_90a")) {
    XQAParams shape = gqa_shape();
    shape.head_dim = shape.head_dim_v = head_dim;
    shape.kv_dtype = kv_dtype;
    return spec_of(Family::kHmma, shape, group_size, q_len, on);
}

inline KernelSpec gmma_spec(std::uint32_t group_size, std::uint32_t head_dim = 128, std::int32_t kv_dtype = XQAJIT_DTYPE_BF16,
                            std::uint32_t page_size = 32) {
    XQAParams shape = gqa_shape();
    shape.head_dim = shape.head_dim_v = head_dim;
    shape.kv_dtype = kv_dtype;
    shape.page_size = page_size;
    return spec_of(Family::kGmma, shape, group_size, 1, arch("sm_90a"));
}

inline LaunchBounds bounds_of(std::uint32_t batch, std::uint64_t max_len, std::uint32_t num_kv_heads = 8) {
    LaunchBounds bounds;
    bounds.batch = batch;
    bounds.max_len = max_len;
    bounds.num_kv_heads = num_kv_heads;
    ArchFacts const on = arch("sm_90a");
    bounds.sm_count = on.sm_count;
    bounds.smem_optin = on.smem_optin;
    return bounds;
}

constexpr std::int32_t kDivisions[] = {XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_INVARIANT};

inline LaunchPlan planned(KernelSpec const& spec, LaunchBounds const& bounds) {
    Result<LaunchPlan> const plan = make_plan(spec, bounds);
    INFO(plan.status().message());
    REQUIRE(plan.ok());
    return *plan;
}

// Launches of every kind, repeatable from the seed.
class RandomLaunch {
public:
    explicit RandomLaunch(std::uint32_t seed) : random_(seed) {}

    std::uint64_t below(std::uint64_t limit) { return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_); }
    // Small values as likely as large ones.
    std::uint64_t spread(std::uint64_t limit) { return below(below(2) == 0 ? std::min<std::uint64_t>(limit, 64) : limit); }

    struct Launch {
        KernelSpec spec;
        LaunchBounds bounds;
    };
    Launch launch() {
        static constexpr char const* kArchs[] = {"sm_86", "sm_80", "sm_90a"};
        static constexpr std::uint32_t kSmCounts[] = {1, 16, 48, 84, 108, 132, 148, 188};
        ArchFacts const on = arch(kArchs[below(std::size(kArchs))]);
        auto const q_len = static_cast<std::uint32_t>(1 + (below(3) == 0 ? below(64) : 0));
        LaunchBounds bounds =
            bounds_of(static_cast<std::uint32_t>(1 + spread(3000)), spread(300000), static_cast<std::uint32_t>(1 + spread(64)));
        bounds.q_len = q_len;
        bounds.sm_count = kSmCounts[below(std::size(kSmCounts))];
        bounds.smem_optin = on.smem_optin;
        bounds.has_clusters = on.has_clusters;
        std::uint64_t const kind = below(6);
        if (kind == 0) bounds.division = XQAJIT_DIVISION_INVARIANT;
        if (kind > 3) bounds.division = XQAJIT_DIVISION_BALANCED;
        if (kind == 1) bounds.nb_sub_seq = static_cast<std::uint32_t>(1 + spread(300));
        return {spec(q_len, on), bounds};
    }

private:
    KernelSpec spec(std::uint32_t q_len, ArchFacts const& on) {
        if (below(5) == 0) return mla_spec(static_cast<std::uint32_t>(1 + below(128)), q_len);
        static constexpr std::int32_t kKvTypes[] = {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3};
        auto const group_size = static_cast<std::uint32_t>(1 + spread(128));
        auto const head_dim = 16 * static_cast<std::uint32_t>(1 + below(16));
        XQAParams shape = gqa_shape();
        shape.head_dim = shape.head_dim_v = head_dim;
        shape.kv_dtype = kKvTypes[below(2)];
        if (below(3) == 0) shape.beam_width = static_cast<std::uint32_t>(1 + below(8));
        bool const gmma = on.has_wgmma && (head_dim >= 64 || group_size * q_len <= device::kMostNarrowRows) &&
                          shape.beam_width == 1 && below(2) == 0;
        return spec_of(gmma ? Family::kGmma : below(2) == 0 ? Family::kMmha : Family::kHmma, shape, group_size, q_len, on);
    }

    std::mt19937 random_;
};

}  // namespace xqajit::test
