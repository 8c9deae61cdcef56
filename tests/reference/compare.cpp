#include "reference/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "reference/codec.h"

namespace xqajit::testing {
namespace {

template <class... Args> std::string printed(char const* format, Args... args) {
    char line[512];
    std::snprintf(line, sizeof line, format, args...);
    return line;
}

// One output vector of a block: where it lies.
struct Vector {
    std::int64_t out_base = 0;
    std::int64_t lse_index = 0;
    std::int64_t row = 0;
    std::uint32_t beam = 0;
    std::uint32_t head = 0;
};

Vector vector_of(ReferenceCase const& c, Block const& block, std::size_t index) {
    std::uint32_t const group = c.group();
    std::uint32_t const beam = c.params.beam_width;
    auto const g = static_cast<std::uint32_t>(index % group);
    auto const w = static_cast<std::uint32_t>(index / group % beam);
    auto const row = static_cast<std::int64_t>(index / group / beam);
    std::uint32_t const head = block.kv_head * group + g;
    std::int64_t const packed_row = (c.first_row(block.request) + row) * beam + w;
    return {packed_row * c.out_stride_row + head * c.out_stride_head, packed_row * c.params.num_q_heads + head, row, w, head};
}

// For messages.
std::string place_of(ReferenceCase const& c, Block const& block, std::size_t index) {
    Vector const at = vector_of(c, block, index);
    return printed("request %u (len %d), row %lld of %lld, beam %u, head %u", block.request, c.seq_lens[block.request],
                   static_cast<long long>(at.row), static_cast<long long>(c.rows_of(block.request)), at.beam, at.head);
}

// Text is made for the first failure alone: an output that is wrong throughout has millions.
template <class F> void fail(Comparison& result, F const& text) {
    if (result.ok) result.text = text();
    result.ok = false;
}

bool is_zero(std::span<double const> row) {
    return std::all_of(row.begin(), row.end(), [](double x) { return x == 0; });
}

void compare_fp8(ReferenceCase const& c, Bytes const& out, BlockResult const& expected, Bounds const& bounds, Comparison& result) {
    std::uint32_t const dim = c.params.head_dim_v;
    float const* const table = decode_table(XQAJIT_DTYPE_FP8_E4M3);
    double largest = 0;
    for (double const want : expected.out) largest = std::max(largest, std::fabs(want));
    // The arithmetic before the rounding may be off as with a 16-bit output; where all is 0, by nothing.
    double const slack = bounds.max_ratio * largest * std::fabs(c.out_scale_rcp);
    auto const code = [](double value) { return static_cast<std::uint8_t>(encode(XQAJIT_DTYPE_FP8_E4M3, value)); };
    for (std::size_t n = 0; n < expected.lse.size(); ++n) {
        Vector const at = vector_of(c, expected.block, n);
        bool const empty = is_zero(std::span(expected.out).subspan(n * dim, dim));
        for (std::uint32_t d = 0; d < dim; ++d) {
            double const scaled = expected.out[n * dim + d] * c.out_scale_rcp;
            std::uint8_t const got = out[static_cast<std::size_t>(at.out_base + d)];
            std::uint32_t const steps = e4m3_steps(got, code(scaled - slack), code(scaled + slack));
            result.fp8_steps = std::max(result.fp8_steps, steps);
            if (steps > 1 || (empty && e4m3_steps(got, 0, 0) != 0))
                fail(result, [&] {
                    return printed("%s, element %u: e4m3 0x%02x (%g), expected 0x%02x (%g)", place_of(c, expected.block, n).c_str(),
                                   d, got, static_cast<double>(table[got]), code(scaled), scaled);
                });
        }
    }
}

// Results this small are below what the output type, or float32 on the way to it, can hold; rounding them is no error.
double negligible(std::int32_t out_dtype) { return out_dtype == XQAJIT_DTYPE_FP16 ? 0x1p-25 : 0x1p-120; }

// The bounds are for sums over many elements. Of a block of one small head the roundings of the weights and of the output may meet: where all
// else was exact, one in 200 blocks of 16 elements was off by 4e-3 or more with bf16, and one in 20000 by 5.5e-3.
Bounds of_few(Bounds bounds, std::size_t elements) {
    if (elements < 64) bounds.rel_l2 *= 1.5, bounds.max_ratio *= 1.5;
    return bounds;
}

void compare_16bit(ReferenceCase const& c, Bytes const& out, BlockResult const& expected, Bounds const& of_many,
                   Comparison& result) {
    std::uint32_t const dim = c.params.head_dim_v;
    Bounds const bounds = of_few(of_many, expected.out.size());
    float const* const table = decode_table(c.params.out_dtype);
    auto const element_text = [&](std::size_t n, std::uint32_t d, double got) {
        return printed("%s, element %u: %g, expected %g", place_of(c, expected.block, n).c_str(), d, got,
                       expected.out[n * dim + d]);
    };
    double error2 = 0;
    double norm2 = 0;
    double worst = 0;
    double largest = 0;
    struct {
        std::size_t vector;
        std::uint32_t element;
        double got;
    } worst_at{};
    for (std::size_t n = 0; n < expected.lse.size(); ++n) {
        Vector const at = vector_of(c, expected.block, n);
        auto const row = std::span(expected.out).subspan(n * dim, dim);
        bool const empty = is_zero(row);
        for (std::uint32_t d = 0; d < dim; ++d) {
            double const want = row[d];
            double const got = table[load_bits(out.data(), at.out_base + d, 2)];
            if (!std::isfinite(got) || (empty && got != 0)) {
                fail(result, [&] { return element_text(n, d, got); });
                return;
            }
            double const error = std::max(0.0, std::fabs(got - want) - negligible(c.params.out_dtype));
            error2 += error * error;
            norm2 += want * want;
            largest = std::max(largest, std::fabs(want));
            if (error > worst) {
                worst = error;
                worst_at = {n, d, got};
            }
        }
    }
    if (error2 == 0) return;  // the norm may be 0 too
    double const rel_l2 = std::sqrt(error2 / norm2);
    double const max_ratio = worst / largest;
    result.rel_l2 = std::max(result.rel_l2, rel_l2);
    result.max_ratio = std::max(result.max_ratio, max_ratio);
    result.of_bound = std::max({result.of_bound, rel_l2 / bounds.rel_l2, max_ratio / bounds.max_ratio});
    if (rel_l2 > bounds.rel_l2 || max_ratio > bounds.max_ratio)
        fail(result, [&] {
            return printed("kv head %u: relative L2 %.3g (bound %.3g), max ratio %.3g (bound %.3g); worst at ",
                           expected.block.kv_head, rel_l2, bounds.rel_l2, max_ratio, bounds.max_ratio) +
                   element_text(worst_at.vector, worst_at.element, worst_at.got);
        });
}

void compare_lse(ReferenceCase const& c, std::span<float const> lse, BlockResult const& expected, Bounds const& bounds,
                 Comparison& result) {
    for (std::size_t n = 0; n < expected.lse.size(); ++n) {
        Vector const at = vector_of(c, expected.block, n);
        double const want = expected.fp8_lse.empty() ? expected.lse[n] : expected.fp8_lse[n];
        double const got = lse[static_cast<std::size_t>(at.lse_index)];
        if (want == got) continue;  // both -inf too
        double const error = std::fabs(got - want);
        double const bound = bounds.lse_abs + bounds.lse_rel * std::fabs(want) + bounds.lse_magnitude * expected.magnitude[n];
        if (std::isfinite(error)) {
            result.lse_error = std::max(result.lse_error, error);
            result.of_bound = std::max(result.of_bound, error / bound);
        }
        if (!std::isfinite(error) || error > bound)
            fail(result, [&] { return printed("%s: lse %.9g, expected %.9g", place_of(c, expected.block, n).c_str(), got, want); });
    }
}

}  // namespace

Bounds bounds_for(std::int32_t q_dtype) {
    double const rel_l2 = q_dtype == XQAJIT_DTYPE_FP16 ? 1e-3 : 4e-3;
    // A score is a float32 sum of terms that may cancel: eight roundings of the terms' size.
    return {rel_l2, 2 * rel_l2, 1e-3, 1e-5, 0x1p-21};
}

Bounds bounds_of(ReferenceCase const& c) {
    xqajit_params const& params = c.params;
    Bounds bounds = bounds_for(params.q_dtype);
    if (params.rope_style != XQAJIT_ROPE_NONE) bounds.lse_magnitude = params.q_dtype == XQAJIT_DTYPE_FP16 ? 0x1p-11 : 0x1p-8;
    if (params.skip_softmax != 0) {
        double const threshold = params.skip_softmax_threshold, left_out = threshold / (1 + threshold);
        bounds.rel_l2 += 2 * left_out;
        bounds.max_ratio += 4 * left_out;
        bounds.lse_abs += std::log1p(threshold);
    }
    return bounds;
}

Bounds fp8_bounds(BlockResult const& expected, Bounds bounds) {
    double error2 = 0;
    double norm2 = 0;
    double worst = 0;
    double largest = 0;
    std::size_t const rows = expected.lse.size(), dim = expected.out.size() / rows;
    for (std::size_t row = 0; row < rows; ++row) {
        double row2[2] = {};  // of either rounding
        for (std::size_t n = row * dim; n < (row + 1) * dim; ++n) {
            double const exact = expected.out[n], error = expected.fp8_out[n] - exact, other = expected.fp8_other[n] - exact;
            row2[0] += error * error;
            row2[1] += other * other;
            norm2 += exact * exact;
            worst = std::max({worst, std::fabs(error), std::fabs(other)});
            largest = std::max(largest, std::fabs(exact));
        }
        error2 += std::max(row2[0], row2[1]);
    }
    bool const any = norm2 > 0;
    double const terms = *std::max_element(expected.magnitude.begin(), expected.magnitude.end());
    double const beside = 2e-3 + std::min(terms * 0x1p-11, 0.05);
    double const factor = 1.1 * (1 + 0.5 / std::sqrt(static_cast<double>(rows)));
    bounds.rel_l2 = std::max(bounds.rel_l2, factor * (any ? std::sqrt(error2 / norm2) : 0) + beside);
    bounds.max_ratio = std::max(bounds.max_ratio, 2 * (factor * (any ? worst / largest : 0) + beside));
    bounds.lse_magnitude = std::max(bounds.lse_magnitude, 0x1p-8);
    return bounds;
}

void Comparison::merge(Comparison const& other) {
    if (ok && !other.ok) text = other.text;
    ok = ok && other.ok;
    rel_l2 = std::max(rel_l2, other.rel_l2);
    max_ratio = std::max(max_ratio, other.max_ratio);
    lse_error = std::max(lse_error, other.lse_error);
    of_bound = std::max(of_bound, other.of_bound);
    fp8_steps = std::max(fp8_steps, other.fp8_steps);
    blocks += other.blocks;
}

std::string Comparison::summary() const {
    return printed("rel_l2 %.2e max %.2e lse %.1e fp8_steps %u (%zu blocks)", rel_l2, max_ratio, lse_error, fp8_steps, blocks);
}

Comparison compare_outputs(ReferenceCase const& c, Bytes const& out, std::span<float const> lse,
                           std::span<BlockResult const> expected, Bounds const& bounds) {
    Comparison result;
    for (BlockResult const& block : expected) {
        Bounds const own = block.fp8_out.empty() ? bounds : fp8_bounds(block, bounds);
        if (c.params.out_dtype == XQAJIT_DTYPE_FP8_E4M3)
            compare_fp8(c, out, block, own, result);
        else
            compare_16bit(c, out, block, own, result);
        if (!lse.empty()) compare_lse(c, lse, block, own, result);
        ++result.blocks;
    }
    return result;
}

}  // namespace xqajit::testing
