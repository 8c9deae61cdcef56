#include "reference/compare.h"

#include <cmath>
#include <limits>

#include "catch.h"
#include "reference/small_case.h"

using namespace xqajit::testing;

namespace {

struct Outputs {
    Bytes out;
    std::vector<float> lse;
};

// What a perfect kernel would store.
Outputs rounded(ReferenceCase const& c, std::vector<BlockResult> const& blocks) {
    std::uint32_t const bytes = bytes_of(c.params.out_dtype);
    Outputs result{Bytes(static_cast<std::size_t>(c.rows() * c.out_stride_row) * bytes),
                   std::vector<float>(static_cast<std::size_t>(c.rows()) * c.params.num_q_heads)};
    bool const fp8 = c.params.out_dtype == XQAJIT_DTYPE_FP8_E4M3;
    for (BlockResult const& block : blocks)
        for (std::uint32_t g = 0; g < c.group(); ++g) {
            std::int64_t const head = block.block.kv_head * c.group() + g;
            result.lse[static_cast<std::size_t>(block.block.request * c.params.num_q_heads + head)] =
                static_cast<float>(block.lse[g]);
            for (std::uint32_t d = 0; d < c.params.head_dim; ++d)
                store_bits(result.out.data(), block.block.request * c.out_stride_row + head * c.out_stride_head + d, bytes,
                           encode(c.params.out_dtype, block.out[g * c.params.head_dim + d] * (fp8 ? c.out_scale_rcp : 1)));
        }
    return result;
}

struct Fixture {
    ReferenceCase c = small_case({});
    std::vector<BlockResult> blocks = compute_reference(c, all_blocks(c));
    Comparison compare(Outputs const& o) const { return compare_outputs(c, o.out, o.lse, blocks, bounds_for(c.params.q_dtype)); }
};

}  // namespace

TEST_CASE("a correctly rounded output is within the bounds", "[reference]") {
    for (std::int32_t const dtype : {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3}) {
        Fixture f;
        f.c.params.out_dtype = dtype;
        f.c.out_scale_rcp = 37;
        Comparison const result = compare_outputs(f.c, rounded(f.c, f.blocks).out, {}, f.blocks,
                                                  bounds_for(dtype == XQAJIT_DTYPE_FP16 ? dtype : XQAJIT_DTYPE_BF16));
        INFO(name_of(dtype) << ": " << result.text);
        CHECK(result.ok);
        CHECK(result.blocks == 6);
    }
}

TEST_CASE("one wrong element is found and named", "[reference][W06]") {
    Fixture const f;
    struct {
        double value;
        char const* why;
    } const wrong[] = {
        {9, "large"}, {std::numeric_limits<double>::quiet_NaN(), "NaN"}, {std::numeric_limits<double>::infinity(), "infinite"}};
    for (auto const& row : wrong) {
        Outputs o = rounded(f.c, f.blocks);
        store_bits(o.out.data(), 2 * f.c.out_stride_row + 4 * f.c.out_stride_head + 11, 2, encode(XQAJIT_DTYPE_BF16, row.value));
        Comparison const result = f.compare(o);
        INFO(row.why << ": " << result.text);
        CHECK_FALSE(result.ok);
        CHECK(result.text.find("request 2") != std::string::npos);
        CHECK(result.text.find("head 4, element 11") != std::string::npos);
    }
}

TEST_CASE("the worst error is told as a part of its bound", "[reference]") {
    Fixture const f;
    Outputs const good = rounded(f.c, f.blocks);
    CHECK(f.compare(good).of_bound < 1);
    for (double const part : {0.5, 0.9, 1.5}) {
        Outputs o = good;
        double const want = f.blocks[0].lse[0];
        Bounds const bounds = bounds_for(f.c.params.q_dtype);
        double const bound = bounds.lse_abs + bounds.lse_rel * std::fabs(want) + bounds.lse_magnitude * f.blocks[0].magnitude[0];
        o.lse[0] = static_cast<float>(want + part * bound);
        Comparison const result = f.compare(o);
        CHECK(result.of_bound >= 0.99 * part);
        CHECK(result.ok == (part < 1));
    }
}

TEST_CASE("anything but 0 in a row that sees nothing is an error", "[reference][W39]") {
    Fixture const f;
    Outputs o = rounded(f.c, f.blocks);
    store_bits(o.out.data(), f.c.out_stride_row, 2, encode(XQAJIT_DTYPE_BF16, 1e-30));
    CHECK_FALSE(f.compare(o).ok);
}

TEST_CASE("a wrong lse is an error, NaN and a finite one for an empty row included", "[reference][W43]") {
    Fixture const f;
    CHECK(f.compare(rounded(f.c, f.blocks)).ok);
    for (auto const& [row, value] : {std::pair{0, 1.4427F}, {1, 0.0F}, {2, std::numeric_limits<float>::quiet_NaN()}}) {
        Outputs o = rounded(f.c, f.blocks);
        float& lse = o.lse[static_cast<std::size_t>(row) * f.c.params.num_q_heads];
        lse = row == 0 ? lse * value : value;  // row 0: base 2 in place of e
        CHECK_FALSE(f.compare(o).ok);
    }
}

TEST_CASE("skip-softmax may leave out what its threshold allows, and without it nothing", "[reference]") {
    ReferenceCase c = Fixture().c;
    Bounds const exact = bounds_for(c.params.q_dtype);
    CHECK(bounds_of(c).rel_l2 == exact.rel_l2);
    c.params.skip_softmax = 1;
    CHECK(bounds_of(c).rel_l2 == exact.rel_l2);
    c.params.skip_softmax_threshold = 0.25F;
    CHECK(bounds_of(c).rel_l2 == Approx(exact.rel_l2 + 0.4));
    CHECK(bounds_of(c).max_ratio == Approx(exact.max_ratio + 0.8));
    CHECK(bounds_of(c).lse_abs == Approx(exact.lse_abs + std::log(1.25)));
}

TEST_CASE("an fp8 output may be one step off what a 16-bit output may be, and no more", "[reference]") {
    Fixture f;
    f.c.params.out_dtype = XQAJIT_DTYPE_FP8_E4M3;
    f.c.out_scale_rcp = 37;
    Outputs const good = rounded(f.c, f.blocks);
    double largest = 0;
    for (double const x : f.blocks[0].out) largest = std::max(largest, std::fabs(x));
    double const slack = bounds_for(f.c.params.q_dtype).max_ratio * largest * f.c.out_scale_rcp;
    for (std::size_t d = 0; d < f.c.params.head_dim; ++d) {
        double const scaled = f.blocks[0].out[d] * f.c.out_scale_rcp;
        for (double const edge : {scaled - slack, scaled + slack})
            for (int const steps : {0, 1, 2}) {
                auto const code = static_cast<std::uint8_t>(encode(XQAJIT_DTYPE_FP8_E4M3, edge));
                int const away = (edge < 0) == (edge < scaled) ? steps : -steps;  // towards larger magnitudes is up the codes
                if ((code & 0x7F) + away < 0 || (code & 0x7F) + away > 0x7E) continue;
                Outputs o = good;
                o.out[d] = static_cast<std::uint8_t>(code + away);
                INFO(d << ": " << scaled << " edge " << edge << " steps " << steps);
                CHECK(f.compare(o).ok == (steps <= 1));
            }
    }
    Outputs o = good;
    o.out[5] = 0x7F;
    CHECK_FALSE(f.compare(o).ok);
}

TEST_CASE("numeric fp8 is granted what its emulation is off, and little more", "[reference]") {
    Fixture f;
    f.c.params.numeric = XQAJIT_NUMERIC_FP8;
    f.blocks = compute_reference(f.c, all_blocks(f.c));
    std::vector<BlockResult> emulated = f.blocks, far = f.blocks;
    for (std::size_t b = 0; b < f.blocks.size(); ++b)
        for (std::size_t n = 0; n < f.blocks[b].out.size(); ++n) {
            double const exact = f.blocks[b].out[n], off = f.blocks[b].fp8_out[n] - exact;
            emulated[b].out[n] = exact + off;
            far[b].out[n] = exact + 3 * off;
        }
    for (std::vector<BlockResult>* const drawn : {&emulated, &far})
        for (std::size_t b = 0; b < f.blocks.size(); ++b) (*drawn)[b].lse = f.blocks[b].fp8_lse;
    Comparison const right = f.compare(rounded(f.c, emulated));
    INFO(right.text);
    CHECK(right.ok);
    CHECK_FALSE(f.compare(rounded(f.c, far)).ok);
    Outputs exact_lse = rounded(f.c, emulated);
    for (float& lse : exact_lse.lse) lse += 0.5F;
    CHECK_FALSE(f.compare(exact_lse).ok);
    for (BlockResult const& block : f.blocks) {
        if (block.lse.empty() || block.magnitude[0] == 0) continue;
        CHECK(fp8_bounds(block, bounds_for(XQAJIT_DTYPE_BF16)).rel_l2 < 0.3);
    }
}

TEST_CASE("a weight of numeric fp8 between two codes may be rounded to either, and to no other", "[reference]") {
    SmallShape shape;
    shape.group = shape.kv_heads = 1;
    shape.lens = {2};
    ReferenceCase c = small_case(shape);
    c.params.numeric = XQAJIT_NUMERIC_FP8;
    // Scores 1 and 0, times qk_scale: the second token's weight, of the first's, lies just below, at or above the middle of two codes.
    auto const unit = [&](Bytes& bytes, std::int64_t offset, double value) {
        for (std::int64_t d = 0; d < c.params.head_dim; ++d)
            store_bits(bytes.data(), offset + d, 2, encode(XQAJIT_DTYPE_BF16, d == 0 ? value : 0));
    };
    unit(c.q, 0, 1);
    unit(*c.k.pool, kv_row(c, false, 0, 0, 0, 0), 1);
    unit(*c.k.pool, kv_row(c, false, 0, 0, 1, 0), 0);
    for (double const code : {32.0, 20.0, 15.0}) {  // of 64, with its neighbour above
        double const step = code >= 32 ? 4 : code >= 16 ? 2 : 1;
        for (double const nudge : {-1e-4, 1e-4}) {
            double const weight = (code + step / 2) / 64 * (1 + nudge);
            c.params.qk_scale = static_cast<float>(-std::log(weight));
            std::vector<BlockResult> const blocks = compute_reference(c, all_blocks(c));
            std::vector<BlockResult> drawn = blocks;
            for (int steps = -1; steps <= 2; ++steps) {
                double const got = (code + step * steps) / 64;
                for (std::uint32_t d = 0; d < c.params.head_dim; ++d)
                    drawn[0].out[d] = (kv_value(c, true, 0, 0, 0, d) + got * kv_value(c, true, 0, 1, 0, d)) / (1 + weight);
                Comparison const result = compare_outputs(c, rounded(c, drawn).out, {}, blocks, bounds_for(XQAJIT_DTYPE_BF16));
                INFO(weight << " as " << got << ": " << result.text);
                CHECK(result.ok == (steps == 0 || steps == 1));
            }
        }
    }
}

TEST_CASE("few elements are granted the chance of their roundings, and many are not", "[reference]") {
    for (std::uint32_t const group : {3U, 8U}) {  // of 16 elements: 48 and 128
        SmallShape shape;
        shape.group = group;
        shape.kv_heads = 1;
        shape.lens = {40};
        ReferenceCase const c = small_case(shape);
        std::vector<BlockResult> const blocks = compute_reference(c, all_blocks(c));
        std::vector<BlockResult> off = blocks;
        for (double& value : off[0].out) value *= 1.0045;  // past 4e-3, and not past one and a half times that
        Comparison const result = compare_outputs(c, rounded(c, off).out, {}, blocks, bounds_for(XQAJIT_DTYPE_BF16));
        INFO(group << ": " << result.rel_l2);
        CHECK(result.ok == (group == 3));
    }
}
