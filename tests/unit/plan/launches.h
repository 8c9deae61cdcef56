// Specs and bounds that the planner's tests start from.
#pragma once

#include <random>

#include "plan/plan.h"

namespace xqajit::test {

inline KernelSpec mmha_spec(std::uint32_t group_size, std::uint32_t head_dim = 128) {
    KernelSpec spec;
    spec.family = Family::kMmha;
    spec.q_dtype = spec.kv_dtype = spec.out_dtype = XQAJIT_DTYPE_BF16;
    spec.head_dim = spec.head_dim_v = head_dim;
    spec.group_size = group_size;
    spec.m_tile = group_size == 1 ? 1 : 2;
    return spec;
}

inline KernelSpec mla_spec(std::uint32_t group_size) {
    KernelSpec spec = mmha_spec(group_size, 576);
    spec.head_dim_v = 512;
    spec.m_tile = group_size == 1 ? 1 : 2;
    spec.mla = true;
    return spec;
}

// Plain decode.
inline KernelSpec hmma_spec(std::uint32_t group_size, std::uint32_t head_dim = 128, std::int32_t kv_dtype = XQAJIT_DTYPE_BF16) {
    KernelSpec spec = mmha_spec(group_size, head_dim);
    spec.family = Family::kHmma;
    spec.kv_dtype = kv_dtype;
    spec.m_tile = group_size <= 8 || head_dim > 128 ? 8 : 16;
    return spec;
}

inline LaunchBounds bounds_of(std::uint32_t batch, std::uint64_t max_len, std::uint32_t num_kv_heads = 8) {
    LaunchBounds bounds;
    bounds.batch = batch;
    bounds.max_len = max_len;
    bounds.num_kv_heads = num_kv_heads;
    bounds.sm_count = 132;
    return bounds;
}

// Launches of every kind, repeatable from the seed.
class RandomLaunch {
public:
    explicit RandomLaunch(std::uint32_t seed) : random_(seed) {}

    std::uint64_t below(std::uint64_t limit) { return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_); }
    // Small values as likely as large ones.
    std::uint64_t spread(std::uint64_t limit) { return below(below(2) == 0 ? std::min<std::uint64_t>(limit, 64) : limit); }

    KernelSpec spec() {
        if (below(5) == 0) return mla_spec(static_cast<std::uint32_t>(1 + below(128)));
        auto const group_size = static_cast<std::uint32_t>(1 + spread(128));
        auto const head_dim = 16 * static_cast<std::uint32_t>(1 + below(16));
        static constexpr std::int32_t kKvTypes[] = {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3};
        KernelSpec made = below(2) == 0 ? mmha_spec(group_size, head_dim) : hmma_spec(group_size, head_dim, kKvTypes[below(2)]);
        if (below(3) == 0) made.beam_width = static_cast<std::uint32_t>(1 + below(8));
        return made;
    }
    LaunchBounds bounds() {
        static constexpr std::uint32_t kSmCounts[] = {1, 16, 48, 84, 108, 132, 148, 188};
        LaunchBounds made =
            bounds_of(static_cast<std::uint32_t>(1 + spread(3000)), spread(300000), static_cast<std::uint32_t>(1 + spread(64)));
        made.q_len = static_cast<std::uint32_t>(1 + (below(3) == 0 ? below(64) : 0));
        made.sm_count = kSmCounts[below(std::size(kSmCounts))];
        std::uint64_t const kind = below(6);
        if (kind == 0) made.division = XQAJIT_DIVISION_INVARIANT;
        if (kind > 3) made.division = XQAJIT_DIVISION_BALANCED;
        if (kind == 1) made.nb_sub_seq = static_cast<std::uint32_t>(1 + spread(300));
        return made;
    }

private:
    std::mt19937 random_;
};

}  // namespace xqajit::test
