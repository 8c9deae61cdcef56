// What a request's numbers may and may not depend on.
#include <cmath>

#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

// The launch of requests [first, first + count) alone. One query row each, so that pointers shift by whole rows.
void run_part(DeviceProblem const& whole, std::uint32_t first, std::uint32_t count, std::uint64_t max_len) {
    DeviceProblem const& p = whole;
    xqajit_run_args args = p.args;
    args.batch = count;
    args.max_len = max_len;
    args.q = static_cast<std::uint16_t const*>(args.q) + first * args.q_stride_row;
    args.out = static_cast<std::uint16_t*>(args.out) + first * args.out_stride_row;
    args.lse += std::size_t{first} * p.params.num_q_heads;
    args.page_table += first * args.page_table_stride;
    args.seq_lens += first;
    require_ok(gpu().synchronize());
    require_ok(api(xqajit_run(gpu().service(), &p.params, &args, gpu().stream())));
    require_ok(gpu().synchronize());
}

Bytes row_of(ReferenceCase const& c, Outputs const& outputs, std::uint32_t request) {
    auto const begin = outputs.out.begin() + static_cast<std::ptrdiff_t>(request * c.out_stride_row * 2);
    return {begin, begin + static_cast<std::ptrdiff_t>(c.out_stride_row * 2)};
}

}  // namespace

TEST_CASE("under invariant division a request's bits depend on neither its neighbours nor max_len", "[gpu][W34][W35]") {
    constexpr std::uint32_t kX = 37;
    Random random(34);
    std::vector<std::int32_t> lens;
    for (int n = 0; n < 64; ++n) lens.push_back(static_cast<std::int32_t>(random.between(1, 65536)));
    lens[kX] = 8192;
    lens[0] = 65536;  // what the page table holds, and so the loosest max_len
    // 8 heads: mmha's plain MHA; 32: tensor cores; 256: of wide tiles.
    for (std::uint32_t const q_heads : {8U, 32U, 256U}) {
        ProblemSpec spec = make_spec({.q_heads = q_heads, .lens = lens});
        spec.max_pool_pages = 256;
        spec.params.division = XQAJIT_DIVISION_INVARIANT;
        ReferenceCase const c = build_case(spec);
        DeviceProblem problem = make_problem(c);
        run_part(problem, kX, 1, 8192);
        Bytes const alone = row_of(c, download(problem), kX);
        Comparison const right = compare_with_reference(c, download(problem), std::vector<Block>{{kX, 0}, {kX, 7}});
        INFO(right.text);
        CHECK(right.ok);
        for (auto const& [first, count] :
             {std::pair{37U, 1U}, {37U, 2U}, {36U, 2U}, {30U, 8U}, {37U, 8U}, {33U, 8U}, {0U, 64U}, {36U, 28U}})
            for (std::uint64_t const max_len : {65536ULL, 0ULL}) {
                require_ok(problem.poison_outputs());
                run_part(problem, first, count, max_len);
                INFO(q_heads << " heads, " << count << " requests from " << first << ", max_len " << max_len);
                CHECK(row_of(c, download(problem), kX) == alone);
            }
    }
}

TEST_CASE("every division gives the same bits run after run", "[gpu][W34]") {
    for (std::uint32_t const q_heads : {8U, 32U, 256U})
        for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT})
            for (std::uint32_t const split : {0U, 7U}) {
                if (split && division != XQAJIT_DIVISION_STATIC) continue;
                ProblemSpec spec =
                    make_spec({.q_heads = q_heads, .kv = XQAJIT_DTYPE_FP8_E4M3, .lens = {8192, 1, 700, 33, 5000, 0, 64}});
                spec.params.division = division;
                spec.params.nb_sub_seq = split;
                ReferenceCase const c = build_case(spec);
                DeviceProblem problem = make_problem(c);
                Outputs const first = run_problem(problem);
                for (int n = 0; n < 20; ++n) REQUIRE(run_problem(problem) == first);
            }
}

// Thousands of blocks, several an SM, and KV that stays in L2: copies come back fast, and reads of shared memory wait for one another. A
// block that took an item of its ring too early, or gave it back too early, would be seen here, most often beside other processes.
TEST_CASE("grids of thousands of blocks give the same bits run after run", "[gpu][W34][repeat]") {
    struct Row {
        std::uint32_t q_heads, kv_heads, dim;
        std::int32_t kv;
        std::size_t batch;
        std::int32_t len;
        std::int32_t numeric = XQAJIT_NUMERIC_DEFAULT;
    };
    for (Row const& row : {Row{2, 2, 128, XQAJIT_DTYPE_BF16, 40, 30000},
                           {16, 2, 128, XQAJIT_DTYPE_BF16, 40, 30000},
                           {32, 16, 128, XQAJIT_DTYPE_BF16, 64, 8192},
                           {64, 8, 128, XQAJIT_DTYPE_FP8_E4M3, 64, 8192},
                           {64, 8, 64, XQAJIT_DTYPE_INT8, 64, 8192},
                           {64, 8, 256, XQAJIT_DTYPE_BF16, 32, 4096},
                           {64, 2, 128, XQAJIT_DTYPE_BF16, 40, 30000},  // 17 to 32 query rows
                           {128, 2, 128, XQAJIT_DTYPE_INT8, 64, 8192},  // up to 64
                           {128, 2, 128, XQAJIT_DTYPE_BF16, 64, 8190},
                           {128, 2, 128, XQAJIT_DTYPE_FP8_E4M3, 64, 8190, XQAJIT_NUMERIC_FP8},
                           {128, 2, 64, XQAJIT_DTYPE_FP8_E4M3, 64, 8190, XQAJIT_NUMERIC_FP8},
                           {256, 8, 64, XQAJIT_DTYPE_FP8_E4M3, 64, 8192},
                           {128, 8, 256, XQAJIT_DTYPE_FP8_E4M3, 32, 4096}})
        for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_INVARIANT}) {
            ProblemSpec spec = make_spec({.q_heads = row.q_heads,
                                          .kv_heads = row.kv_heads,
                                          .dim = row.dim,
                                          .page = 32,
                                          .kv = row.kv,
                                          .lens = std::vector<std::int32_t>(row.batch, row.len)});
            spec.max_pool_pages = 256;
            spec.params.division = division;
            spec.params.numeric = row.numeric;
            if (!is_served(spec.params)) continue;
            ReferenceCase const c = build_case(spec);
            DeviceProblem problem = make_problem(c);
            Outputs const first = run_problem(problem);
            INFO(row.q_heads << ":" << row.kv_heads << " heads, D " << row.dim << ", " << row.batch << " x " << row.len
                             << ", division " << division);
            Comparison const right =
                compare_with_reference(c, first, std::vector<Block>{{0, 0}, {static_cast<std::uint32_t>(row.batch / 2), 1}});
            INFO(right.text);
            CHECK(right.ok);
            for (int n = 0; n < 60; ++n) {
                Outputs const again = run_problem(problem);
                if (again == first) continue;
                FAIL_CHECK("run " << n << ": other bits " << difference(c, first, again) << ", at a distance of "
                                  << distance(spec.params, first, again));
            }
        }
}

TEST_CASE("balanced division finds every request's parts, in batches of any size and lengths of any mix", "[gpu][W21]") {
    Random random(77);
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const q_heads : {2U, 8U})
        for (std::size_t const batch : {1U, 2U, 31U, 32U, 33U, 64U, 65U, 300U})
            for (int const mix : {0, 1, 2}) {  // one long request, all alike, any
                std::vector<std::int32_t> lens(batch, mix == 1 ? 900 : 0);
                if (mix == 0) lens[batch - 1] = 20000;
                for (std::int32_t& len : lens)
                    if (mix == 2)
                        len =
                            static_cast<std::int32_t>(random.between(0, 3) == 0 ? random.between(0, 6000) : random.between(0, 64));
                ProblemSpec spec = make_spec({.q_heads = q_heads, .kv_heads = 2, .dim = 64, .page = 16, .lens = lens});
                spec.params.division = XQAJIT_DIVISION_BALANCED;
                spec.max_pool_pages = 2048;
                specs.push_back(spec);
                spec.params.sliding_window = 300;
                specs.push_back(spec);
            }
    require_all_right(specs);
}

TEST_CASE("balanced division counts the rows of ragged drafts and of beams", "[gpu][W21]") {
    Random random(78);
    std::vector<ProblemSpec> specs;
    for (std::int32_t const spec_dec : {XQAJIT_SPEC_DEC_LINEAR, XQAJIT_SPEC_DEC_TREE}) {
        ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .spec_dec = spec_dec, .q_len = 12, .lens = {}});
        for (int b = 0; b < 40; ++b) {
            spec.lens.push_back(static_cast<std::int32_t>(random.between(0, 1500)));
            spec.q_lens.push_back(static_cast<std::int32_t>(random.between(0, 12)));
        }
        specs.push_back(spec);
    }
    for (std::uint32_t const beam : {2U, 5U}) {
        ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .page = 16, .lens = {}});
        for (int b = 0; b < 35; ++b) spec.lens.push_back(static_cast<std::int32_t>(random.between(1, 900)));
        spec.params.beam_width = beam;
        specs.push_back(spec);
    }
    for (ProblemSpec& spec : specs) spec.params.division = XQAJIT_DIVISION_BALANCED;
    require_all_right(specs);
}

TEST_CASE("a looser max_len stays within the bounds", "[gpu][W35]") {
    ProblemSpec spec = make_spec({.lens = {700, 1200}});
    spec.spare_table_entries = 131072 / 64;
    ReferenceCase const c = build_case(spec);
    for (std::uint64_t const max_len : {1200ULL, 4096ULL, 131072ULL}) {
        LaunchOptions options;
        options.max_len = max_len;
        require_right(c, to_string(spec), options);
    }
}

TEST_CASE("the automatic division agrees with one part at every length", "[gpu][W21]") {
    constexpr std::int32_t kLongest = 2000;
    for (std::uint32_t const batch : {1U, 3U, 16U}) {
        ProblemSpec spec =
            make_spec({.q_heads = 16, .kv_heads = 8, .page = 16, .lens = std::vector<std::int32_t>(batch, kLongest)});
        spec.max_pool_pages = 700;
        DeviceProblem chosen = make_problem(build_case(spec));  // its workspace starts as NaN
        spec.params.division = XQAJIT_DIVISION_STATIC;
        spec.params.nb_sub_seq = 1;
        DeviceProblem single = make_problem(build_case(spec));
        for (std::int32_t len = 1; len <= kLongest; ++len) {
            std::vector<std::int32_t> const lens(batch, len);
            for (DeviceProblem* const problem : {&chosen, &single}) {
                require_ok(problem->set_seq_lens(lens));
                problem->args.max_len = static_cast<std::uint64_t>(len);
            }
            Outputs const a = run_problem(chosen);
            Outputs const b = run_problem(single);
            double const error = distance(single.params, a, b);
            INFO("batch " << batch << ", length " << len);
            REQUIRE(error <= 4e-3);  // NaN fails too
        }
    }
}

TEST_CASE("two calls merge by their lse into one", "[gpu][W43]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        for (std::uint32_t const split : {0U, 1U, 4U})
            specs.push_back(make_spec({.q_heads = 8, .kv_heads = 2, .kv = kv, .split = split, .lens = {4096}}));
    for (ProblemSpec const& spec : specs) {
        ReferenceCase const c = build_case(spec);
        DeviceProblem problem = make_problem(c);
        Outputs const whole = run_problem(problem);
        for (std::int32_t const cut : {64, 1024, 4032}) {
            require_ok(problem.set_seq_lens({cut}));
            Outputs const head = run_problem(problem);
            require_ok(problem.set_seq_lens({4096 - cut}));
            std::int32_t const* const table = problem.args.page_table;
            problem.args.page_table += cut / 64;
            problem.args.max_pages -= static_cast<std::uint32_t>(cut) / 64;
            Outputs const tail = run_problem(problem);
            problem.args.page_table = table;
            problem.args.max_pages += static_cast<std::uint32_t>(cut) / 64;
            double error2 = 0;
            double norm2 = 0;
            for (std::size_t h = 0; h < 8; ++h) {
                double const a = std::exp(static_cast<double>(head.lse[h]) - whole.lse[h]);
                double const b = std::exp(static_cast<double>(tail.lse[h]) - whole.lse[h]);
                CHECK(a + b == Approx(1).margin(1e-3));
                for (std::int64_t d = 0; d < 128; ++d) {
                    auto const at = static_cast<std::int64_t>(h) * 128 + d;
                    auto const value = [&](Outputs const& o) { return decode(XQAJIT_DTYPE_BF16, load_bits(o.out.data(), at, 2)); };
                    double const merged = a * value(head) + b * value(tail);
                    error2 += std::pow(merged - value(whole), 2);
                    norm2 += std::pow(value(whole), 2);
                }
            }
            INFO(to_string(spec) << " cut at " << cut);
            CHECK(std::sqrt(error2 / norm2) <= 4e-3);
        }
    }
}
