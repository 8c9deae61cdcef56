// The reference system's multi-block formulas. Integers throughout: it computes some of them in float or double, and its results
// differ from these only where its own rounding of an exact tie or an exact quotient goes wrong.
#include <algorithm>
#include <bit>

#include "plan/ceil_div.h"
#include "plan/plan.h"

namespace xqajit {

namespace {

constexpr std::uint64_t kTokensPerStep = 128;  // least tokens that the reference gives a sub-sequence
constexpr std::uint64_t kTargetWaves = 8;

// Half goes up, as std::round has it for positive numbers. The operands here stay far below 2^63.
std::uint64_t rounded_div(std::uint64_t value, std::uint64_t divisor) { return (2 * value + divisor) / (2 * divisor); }

// Both factors have 32 bits, so the product has 64; past 2^40 it exceeds every SM count a thousandfold, and the cap leaves
// head-room.
std::uint64_t product(std::uint64_t batch, std::uint64_t num_kv_heads) {
    return std::clamp<std::uint64_t>(batch * num_kv_heads, 1, std::uint64_t{1} << 40);
}

std::uint32_t at_least_1(std::uint64_t value) { return static_cast<std::uint32_t>(std::max<std::uint64_t>(value, 1)); }

std::uint64_t floor_sqrt(std::uint64_t value) {
    std::uint64_t root = 0;
    for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
        if ((root + bit) * (root + bit) <= value) root += bit;
    }
    return root;
}

// round(sqrt(value)): up from (root + 1/2)^2 = root^2 + root + 1/4, which no integer equals.
std::uint64_t rounded_sqrt(std::uint64_t value) {
    std::uint64_t const root = floor_sqrt(value);
    return value > root * root + root ? root + 1 : root;
}

std::uint32_t floor_log2(std::uint64_t value) { return static_cast<std::uint32_t>(std::bit_width(value)) - 1; }

}  // namespace

std::uint32_t decode_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t past_len, std::uint32_t sm_count,
                              std::uint32_t max_sub_seq) {
    // Lengths past 2^40 would only overflow below; the last line caps n long before.
    std::uint64_t const steps = std::min<std::uint64_t>(past_len, std::uint64_t{1} << 40) / kTokensPerStep;
    std::uint64_t n = std::max<std::uint64_t>(1, std::min(steps, rounded_sqrt(8 * steps)));
    // n / (batch * heads * n / SMs / 8) is 8 * SMs / (batch * heads), whatever n; and n lies above that exactly where the waves
    // exceed 8.
    n = std::min(n, std::max<std::uint64_t>(1, kTargetWaves * sm_count / product(batch, num_kv_heads)));
    return at_least_1(std::min<std::uint64_t>(n, max_sub_seq / std::max(batch, 1u)));
}

std::uint32_t gmma_kernel_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t len, std::uint32_t sm_count) {
    std::uint64_t const by_sms =
        std::max<std::uint64_t>(1, rounded_div(3 * std::uint64_t{sm_count}, 4 * product(batch, num_kv_heads)));
    return at_least_1(std::min(by_sms, ceil_div(len, 64)));
}

std::uint32_t mmha_wave_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint32_t sm_count) {
    // Four blocks an SM is what the registers of group size 1 allow, the shapes this family is fast for; a second, partial wave
    // costs more than it balances (kernel_src/mmha/README.md has the measurement). Larger groups have several row blocks besides,
    // which are left out: they read the same KV, and more sub-sequences measured better than fewer there.
    return at_least_1(4 * std::uint64_t{sm_count} / product(batch, num_kv_heads));
}

std::uint32_t hmma_kernel_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t len, std::uint32_t sm_count) {
    std::uint64_t const by_sms = std::max<std::uint64_t>(1, sm_count / product(batch, num_kv_heads));
    return at_least_1(std::min(by_sms, ceil_div(len, 256)));
}

std::uint32_t spec_gmma_sub_seqs(std::uint32_t batch, std::uint32_t num_kv_heads, std::uint64_t past_len, std::uint32_t q_len,
                                 std::uint32_t group_size, std::uint32_t sm_count) {
    std::uint64_t const tokens_per_block = std::max(64 / std::max(group_size, 1u), 1u);
    std::uint64_t const spec_blocks = ceil_div(q_len, tokens_per_block);
    std::uint64_t const per_block = product(batch, num_kv_heads);
    std::uint64_t const single = std::max<std::uint64_t>(1, spec_blocks * std::min<std::uint64_t>(per_block, UINT32_MAX));
    if (batch > 32 || past_len < 2048 || single >= sm_count) return 1;

    std::uint64_t n = std::min<std::uint64_t>(std::bit_floor(sm_count / single), 64);
    if (single <= 8 && n >= 16 && past_len < 65536) {
        // By 3 from 2048 tokens, by 2 from 4096, by 1 from 16384.
        bool const is_short_at_8 = single == 8 && past_len <= 8192;
        n >>= is_short_at_8 ? 1 : 3 - (floor_log2(past_len) - 10) / 2;
    }
    return at_least_1(n);
}

std::uint32_t mla_sub_seqs(std::uint32_t batch, std::uint64_t past_len, std::uint32_t sm_count) {
    std::uint64_t const requests = std::max(batch, 1u);
    std::uint64_t const n =
        std::min({rounded_div(sm_count, requests), ceil_div(past_len, kTokensPerStep), kMaxSubSeqMla / requests});
    return at_least_1(n);
}

}  // namespace xqajit
