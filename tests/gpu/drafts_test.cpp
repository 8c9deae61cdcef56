// Windows, drafts and sinks: which tokens a row sees, and what joins the denominator.
#include <cmath>

#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

constexpr std::int32_t kLinear = XQAJIT_SPEC_DEC_LINEAR;

// Equal keys and V[t] = t: each output element is the mean index of the tokens that its row sees. Exact in float64 terms.
ReferenceCase token_means(ProblemSpec spec) {
    spec.draw = Draw::kEqualKeys;
    ReferenceCase c = build_case(spec);
    for (std::uint32_t b = 0; b < c.batch; ++b) {
        std::vector<bool> seen(static_cast<std::size_t>(c.seq_lens[b]));
        for (std::int64_t i = 0; i < c.rows_of(b); ++i)
            for (std::int64_t const t : visible_tokens(c, b, i)) seen[static_cast<std::size_t>(t)] = true;
        for (std::int64_t t = 0; t < c.seq_lens[b]; ++t)  // unseen tokens stay NaN
            if (seen[static_cast<std::size_t>(t)])
                for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h)
                    for (std::uint32_t d = 0; d < c.params.head_dim_v; ++d) set_kv(c, true, b, t, h, d, static_cast<double>(t));
    }
    return c;
}

}  // namespace

TEST_CASE("each draft row has a window of its own", "[gpu][W05]") {
    for (std::uint32_t const group : {1U, 4U, 8U, 16U}) {
        ProblemSpec spec = make_spec(
            {.q_heads = 2 * group, .kv_heads = 2, .spec_dec = kLinear, .q_len = 8, .window = 4, .lens = {3, 9, 129, 5000}});
        require_right(token_means(spec), to_string(spec));
        spec.q_lens = {0, 1, 5, 8};
        require_right(token_means(spec), to_string(spec));
    }
}

TEST_CASE("a windowed draft over fp8 KV is right in every row and head at every length", "[gpu][W06]") {
    std::vector<std::int32_t> lens;
    for (std::int32_t len = 1000; len <= 1400; ++len) lens.push_back(len);
    ProblemSpec spec = make_spec({.q_heads = 32,
                                  .kv_heads = 16,
                                  .dim = 256,
                                  .page = 16,
                                  .kv = XQAJIT_DTYPE_FP8_E4M3,
                                  .spec_dec = kLinear,
                                  .q_len = 8,
                                  .window = 1024,
                                  .lens = lens});
    spec.k_scale = spec.v_scale = 1;
    spec.max_pool_pages = 512;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        spec.seed = seed;
        ReferenceCase const c = build_case(spec);
        std::vector<Block> blocks;  // each length once a seed, the heads in turn
        for (std::uint32_t b = 0; b < c.batch; ++b) blocks.push_back({b, static_cast<std::uint32_t>((b + seed * 5) % 16)});
        require_right(c, to_string(spec), {}, blocks);
    }
}

TEST_CASE("a draft shorter than the cache is aligned to its end", "[gpu][W32]") {
    ProblemSpec const spec = make_spec({.q_heads = 4, .kv_heads = 1, .spec_dec = kLinear, .q_len = 3, .lens = {10, 2, 3, 0, 200}});
    ReferenceCase const c = token_means(spec);
    Outputs const outputs = require_right(c, to_string(spec));
    for (int row = 0; row < 3; ++row) {  // request 0: row j sees tokens 0 .. 7 + j
        double const got = decode(XQAJIT_DTYPE_BF16, load_bits(outputs.out.data(), row * c.out_stride_row, 2));
        CHECK(got == Approx((7 + row) / 2.0).epsilon(4e-3));
    }
    CHECK(load_bits(outputs.out.data(), 3 * c.out_stride_row, 2) == 0);  // request 1, row 0: position -1
    CHECK(std::isinf(outputs.lse[3 * 4]));
}

TEST_CASE("requests of one launch have drafts of different lengths, none included", "[gpu][A09]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const spec_dec : {XQAJIT_SPEC_DEC_LINEAR, XQAJIT_SPEC_DEC_TREE})
        for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8}) {
            ProblemSpec spec =
                make_spec({.q_heads = 8, .kv_heads = 2, .kv = kv, .spec_dec = spec_dec, .q_len = 40, .lens = {30, 500, 64, 9}});
            for (std::vector<std::int32_t> const& q_lens :
                 {std::vector<std::int32_t>{1, 4, 2, 0}, {40, 40, 40, 40}, {0, 0, 33, 9}}) {
                spec.q_lens = q_lens;
                specs.push_back(spec);
            }
        }
    require_all_right(specs);
}

// Rows of a KV head: heads of its group times draft tokens. Each number of them has a block of its own shape: up to 8 or 16 are one
// warp's, more those of several warps that share K and V.
TEST_CASE("drafts of every number of rows are right, whole and ragged", "[gpu][A09]") {
    struct Draft {
        std::uint32_t group, q_len;
        std::vector<std::int32_t> ragged;  // warps and whole blocks without rows, a row short of a warp's, none at all
    };
    std::vector<Draft> const drafts = {{1, 8, {8, 1, 0, 7}},   {2, 8, {1, 8, 4, 0}},     {4, 8, {8, 3, 0, 5}},
                                       {8, 8, {1, 3, 0, 8}},   {1, 64, {64, 15, 33, 0}}, {8, 64, {64, 9, 1, 40}},
                                       {3, 11, {0, 11, 5, 6}}, {5, 4, {4, 3, 1, 0}}};
    std::pair<std::int32_t, std::int32_t> const types[] = {{XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_DEFAULT},
                                                           {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_DEFAULT},
                                                           {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_INT8},
                                                           {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3}};
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const dim : {64U, 80U, 128U, 256U})
        for (auto const& [q, kv] : types)
            for (Draft const& draft : drafts) {
                ProblemSpec spec = make_spec({.q_heads = 2 * draft.group,
                                              .kv_heads = 2,
                                              .dim = dim,
                                              .page = 16,
                                              .q = q,
                                              .kv = kv,
                                              .spec_dec = draft.q_len > 8 ? XQAJIT_SPEC_DEC_TREE : kLinear,
                                              .q_len = draft.q_len,
                                              .lens = {70, 200, 300, 9}});
                specs.push_back(spec);
                // Long and undivided, so that a block takes many steps.
                spec.lens = {70, 1029, 300, 9};
                spec.q_lens = draft.ragged;
                spec.params.division = XQAJIT_DIVISION_STATIC;
                spec.params.nb_sub_seq = 1;
                specs.push_back(spec);
            }
    require_all_right(specs);
}

TEST_CASE("a sink joins the denominator once, however the request is divided", "[gpu][W16]") {
    for (std::uint32_t const split : {0U, 1U, 2U, 8U})
        for (std::uint32_t const window : {0U, 64U})
            for (float const softcap : {0.0F, 30.0F}) {
                ProblemSpec spec = make_spec(
                    {.q_heads = 4, .kv_heads = 1, .window = window, .split = split, .sinks = true, .lens = {8192, 0, 50}});
                spec.params.softcap = softcap;
                spec.draw = Draw::kEqualKeys;
                ReferenceCase c = build_case(spec);
                c.sinks = {-5, 0, 3, 10};
                for (std::uint32_t const b : {0U, 2U})
                    for (std::int64_t t = window ? c.seq_lens[b] - std::min<std::int64_t>(c.seq_lens[b], window) : 0;
                         t < c.seq_lens[b]; ++t)
                        for (std::uint32_t d = 0; d < 128; ++d) set_kv(c, true, b, t, 0, d, 1);
                Outputs const outputs = require_right(c, to_string(spec));
                for (std::uint32_t b = 0; b < 3; ++b)
                    for (std::uint32_t h = 0; h < 4; ++h) {
                        double const n = window ? std::min<double>(window, c.seq_lens[b]) : c.seq_lens[b];
                        double const sink = c.sinks[h];
                        double const got = decode(XQAJIT_DTYPE_BF16, load_bits(outputs.out.data(), (b * 4 + h) * 128, 2));
                        CHECK(got == Approx(n / (n + std::exp(sink))).epsilon(4e-3));  // half a bf16 step and more
                        CHECK(outputs.lse[b * 4 + h] == Approx(std::log(n + std::exp(sink))).margin(1e-3));
                    }
            }
}

TEST_CASE("sinks count the same for every cache type", "[gpu][W18]") {
    std::vector<ProblemSpec> specs;
    for (auto const& [q, kv] : {std::pair{XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_DEFAULT},
                                {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_DEFAULT},
                                {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3},
                                {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_INT8}})
        for (std::uint32_t const split : {1U, 4U})
            for (std::uint32_t const q_len : {1U, 4U})
                for (std::uint32_t const window : {0U, 128U})
                    specs.push_back(make_spec({.q_heads = 8,
                                               .kv_heads = 2,
                                               .q = q,
                                               .kv = kv,
                                               .spec_dec = q_len > 1 ? kLinear : XQAJIT_SPEC_DEC_NONE,
                                               .q_len = q_len,
                                               .window = window,
                                               .split = split,
                                               .sinks = true,
                                               .lens = {8192, 0, 50, 700}}));
    require_all_right(specs);
}
