// Tiles that skip-softmax leaves out: how many, which never, and what they cost (kernel_src/gmma/README.md).
#include <cmath>

#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

ProblemSpec make_skipping(Shape const& shape, float threshold, Draw draw = Draw::kPeaked) {
    ProblemSpec spec = make_spec(shape);
    spec.params.skip_softmax = 1;
    spec.params.skip_softmax_threshold = threshold;
    spec.draw = draw;
    if (xqajit_supports(gmma().service(), &spec.params, nullptr) != XQAJIT_OK) skip_test(xqajit_last_error());
    return spec;
}

struct Ran {
    Outputs outputs;
    DeviceProblem::SkippedTiles tiles;
};

// Twice: the same bits and counts.
Ran run_skipping(ReferenceCase const& c, int runs = 2) {
    Result<DeviceProblem> problem = DeviceProblem::upload(gmma(), c);
    require_ok(problem.status());
    require_ok(problem->prepare(gmma()));
    Ran ran;
    for (int n = 0; n < runs; ++n) {
        require_ok(problem->run(gmma()));
        Outputs outputs = download(*problem);
        Result<DeviceProblem::SkippedTiles> const tiles = problem->take_skipped_tiles();
        require_ok(tiles.status());
        require_ok(problem->check_memory(outputs));
        if (n > 0) {
            CHECK(outputs == ran.outputs);
            CHECK(tiles->skipped == ran.tiles.skipped);
            CHECK(tiles->all == ran.tiles.all);
        }
        ran = {std::move(outputs), *tiles};
    }
    return ran;
}

double largest_value(ReferenceCase const& c, Block const& block) {
    double largest = 0;
    for (std::int64_t t = 0; t < c.seq_lens[block.request]; ++t) {
        std::int64_t const row = kv_row(c, true, block.request, 0, t, block.kv_head);
        for (std::uint32_t d = 0; d < c.params.head_dim_v; ++d) {
            double const value = decode(c.params.kv_dtype, load_bits(c.v.pool->data(), row + d, bytes_of(c.params.kv_dtype)));
            if (!std::isnan(value)) largest = std::max(largest, std::fabs(value * c.v_scale));  // NaN: of tokens that no row sees
        }
    }
    return largest;
}

// What is skipped is at most t / (1 + t) of a row's denominator, t the threshold. That moves the output by as much of the distance between
// two means of V, and lowers the lse by at most ln(1 + t); both beside the arithmetic's own error.
void require_within_threshold(ReferenceCase const& c, Outputs const& outputs) {
    double const threshold = c.params.skip_softmax_threshold;
    Bounds const exact = bounds_for(c.params.q_dtype);
    for (BlockResult const& want : compute_reference(c, choose_blocks(c))) {
        double const most_skipped = 2 * threshold / (1 + threshold) * largest_value(c, want.block);
        double largest = 0;
        for (double const x : want.out) largest = std::max(largest, std::fabs(x));
        std::uint32_t const dim = c.params.head_dim_v;
        for (std::size_t n = 0; n < want.lse.size(); ++n) {
            std::int64_t const row = c.first_row(want.block.request) + static_cast<std::int64_t>(n / c.group());
            std::int64_t const head = want.block.kv_head * c.group() + static_cast<std::int64_t>(n % c.group());
            INFO("request " << want.block.request << ", row " << row << ", head " << head);
            double worst = 0;
            for (std::uint32_t d = 0; d < dim; ++d) {
                std::int64_t const at = row * c.out_stride_row + head * c.out_stride_head + d;
                double const got = decode(c.params.out_dtype, load_bits(outputs.out.data(), at, 2));
                worst = std::max(worst, std::fabs(got - want.out[n * dim + d]));
            }
            REQUIRE(worst <= most_skipped + exact.max_ratio * largest);
            double const lse = outputs.lse[static_cast<std::size_t>(row * c.params.num_q_heads + head)];
            if (std::isinf(want.lse[n])) {
                REQUIRE(lse == want.lse[n]);
                continue;
            }
            double const rounding =
                exact.lse_abs + exact.lse_rel * std::fabs(want.lse[n]) + exact.lse_magnitude * want.magnitude[n];
            REQUIRE(lse <= want.lse[n] + rounding);
            REQUIRE(lse >= want.lse[n] - std::log1p(threshold) - rounding);
        }
    }
}

void prewarm(std::vector<ProblemSpec> const& specs) {
    std::vector<xqajit_params> shapes;
    for (ProblemSpec const& spec : specs) shapes.push_back(spec.params);
    require_ok(gmma().prewarm(shapes));
}

}  // namespace

TEST_CASE("skipped tiles are counted, and cost no more than the threshold allows", "[gpu][skip]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        for (std::uint32_t const dim : {64U, 128U, 256U})
            for (std::uint32_t const split : {0U, 1U, 3U, 8U})
                for (float const threshold : {0.02F, 1.0F, 50.0F})
                    specs.push_back(make_skipping({.q_heads = 16,
                                                   .kv_heads = 2,
                                                   .dim = dim,
                                                   .page = 32,
                                                   .kv = kv,
                                                   .split = split,
                                                   .lens = {16384, 1, 700, 0, 33, 5000}},
                                                  threshold));
    prewarm(specs);
    for (ProblemSpec const& spec : specs) {
        INFO(to_string(spec) << " threshold " << spec.params.skip_softmax_threshold);
        ReferenceCase const c = build_case(spec);
        Ran const ran = run_skipping(c);
        INFO(ran.tiles.skipped << " of " << ran.tiles.all << " tiles skipped");
        CHECK(ran.tiles.all == 2 * (256 + 1 + 11 + 0 + 1 + 79));
        CHECK(ran.tiles.skipped < ran.tiles.all);
        if (spec.params.skip_softmax_threshold >= 50 || (spec.params.nb_sub_seq == 1 && spec.params.skip_softmax_threshold >= 1))
            CHECK(ran.tiles.skipped > 0);
        require_within_threshold(c, ran.outputs);
        // These keys are far from the worst case.
        Bounds bounds = bounds_for(c.params.q_dtype);
        bounds.rel_l2 = bounds.max_ratio = bounds.lse_abs = 0.02;
        Comparison const close =
            compare_outputs(c, ran.outputs.out, ran.outputs.lse, compute_reference(c, choose_blocks(c)), bounds);
        INFO(close.text);
        CHECK(close.ok);
    }
}

// All keys but the first score 0, and the first one what puts them just below the limit, ln(4096 / 0.5) = 9.011, or just above.
TEST_CASE("tiles just below the limit are skipped and those just above are not, and the error is the bound's", "[gpu][skip]") {
    constexpr std::int64_t kLen = 4096, kKept = 64;
    for (std::int32_t const kv : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3}) {
        ProblemSpec spec =
            make_skipping({.q_heads = 8, .kv_heads = 1, .dim = 64, .kv = kv, .split = 1, .lens = {kLen}}, 0.5F, Draw::kGaussian);
        spec.k_scale = spec.v_scale = 1;
        for (double const first : {9.0, 9.0625}) {  // in bf16, or by the scale
            if (kv == XQAJIT_DTYPE_FP8_E4M3) spec.k_scale = static_cast<float>(first / 8);
            ReferenceCase c = build_case(spec);
            set_q(c, 1);
            for (std::int64_t t = 0; t < kLen; ++t)
                for (std::uint32_t d = 0; d < 64; ++d) set_kv(c, false, 0, t, 0, d, t == 0 ? first / 8 : 0);
            Ran const ran = run_skipping(c);
            bool const skips = first > std::log(kLen / 0.5);
            INFO("first score " << first << ", " << ran.tiles.skipped << " of " << ran.tiles.all << " tiles skipped");
            CHECK(ran.tiles.all == kLen / 64);
            CHECK(ran.tiles.skipped == (skips ? kLen / 64 - 1 : 0));
            require_within_threshold(c, ran.outputs);
            double const kept = static_cast<double>(skips ? kKept : kLen) - 1;
            for (float const lse : ran.outputs.lse) CHECK(lse == Approx(first + std::log1p(kept * std::exp(-first))).margin(2e-3));
        }
    }
}

TEST_CASE("tiles are skipped under every mask, with every feature, and with rows that a block has to spare", "[gpu][skip]") {
    std::vector<std::int32_t> const lens = {16384, 1, 9000, 0, 129};
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const group : {1U, 5U, 8U, 11U, 16U})
        for (std::uint32_t const page : {0U, 8U, 128U})
            specs.push_back(make_skipping({.q_heads = 2 * group, .kv_heads = 2, .page = page, .lens = lens}, 20));
    for (std::int32_t const kv : {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_FP8_E4M3}) {
        Shape shape{.q_heads = 8, .kv_heads = 1, .q = XQAJIT_DTYPE_FP16, .kv = kv, .split = 2, .lens = lens};
        shape.window = 5000;
        specs.push_back(make_skipping(shape, 20));
        shape.sinks = true;
        specs.push_back(make_skipping(shape, 20));
        specs.back().params.softcap = 30;
        for (std::int32_t const spec_dec : {XQAJIT_SPEC_DEC_LINEAR, XQAJIT_SPEC_DEC_TREE}) {
            shape.window = spec_dec == XQAJIT_SPEC_DEC_LINEAR ? 5000 : 0;
            shape.spec_dec = spec_dec;
            shape.q_heads = 3;
            shape.q_len = 5;
            specs.push_back(make_skipping(shape, 20));
            specs.push_back(specs.back());
            specs.back().q_lens = {5, 1, 3, 0, 2};
        }
    }
    for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT}) {
        specs.push_back(make_skipping({.q_heads = 64, .kv_heads = 8, .lens = lens}, 20));
        specs.back().params.division = division;
    }
    prewarm(specs);
    for (ProblemSpec const& spec : specs) {
        INFO(to_string(spec));
        ReferenceCase const c = build_case(spec);
        Ran const ran = run_skipping(c);
        INFO(ran.tiles.skipped << " of " << ran.tiles.all << " tiles skipped");
        CHECK(ran.tiles.skipped > ran.tiles.all / 16);  // a block may have few tokens, with its peak near their end
        CHECK(ran.tiles.skipped < ran.tiles.all);
        require_within_threshold(c, ran.outputs);
    }
}

TEST_CASE("nothing is skipped without a threshold, of equal keys, and of requests as short as the threshold", "[gpu][skip]") {
    for (std::uint32_t const split : {0U, 1U, 5U})
        for (Draw const draw : {Draw::kPeaked, Draw::kGaussian, Draw::kEqualKeys, Draw::kRamp}) {
            Shape const shape{.q_heads = 16, .kv_heads = 2, .kv = XQAJIT_DTYPE_FP8_E4M3, .split = split, .lens = {4096, 64, 777}};
            ReferenceCase const c = build_case(make_skipping(shape, 0, draw));
            Ran const none = run_skipping(c);
            CHECK(none.tiles.skipped == 0);
            CHECK(none.tiles.all == 2 * (64 + 1 + 13));
            Comparison const right = compare_with_reference(c, none.outputs);
            INFO(right.text);
            CHECK(right.ok);
            // Judged, and found to matter: the same arithmetic.
            for (float const threshold : {1e-30F, 4096.0F, draw == Draw::kEqualKeys ? 4000.0F : 1e-20F}) {
                Ran const kept = run_skipping(build_case(make_skipping(shape, threshold, draw)));
                INFO("threshold " << threshold << ": " << kept.tiles.skipped << " skipped");
                CHECK(kept.tiles.skipped == 0);
                CHECK(kept.outputs == none.outputs);
            }
        }
}

TEST_CASE("the same tiles are skipped run after run, in grids of thousands of blocks", "[gpu][skip][repeat]") {
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
        for (std::size_t const batch : {1U, 8U, 64U}) {
            ProblemSpec spec = make_skipping(
                {.q_heads = 64, .kv_heads = 8, .page = 32, .kv = kv, .lens = std::vector<std::int32_t>(batch, 8192)}, 20);
            spec.max_pool_pages = 512;
            INFO(to_string(spec));
            Ran const ran = run_skipping(build_case(spec), 40);
            CHECK(ran.tiles.skipped > 0);
            CHECK(ran.tiles.all == batch * 8 * 128);
        }
}
