// Memory that a launch has no business with: stale slots, stale page-table entries, empty requests.
#include <cmath>

#include "gpu/fixture.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

bool all_zero(Bytes const& bytes) {
    for (std::uint8_t const byte : bytes)
        if (byte != 0) return false;
    return true;
}

}  // namespace

TEST_CASE("what lies in unused slots and pages changes no bit", "[gpu][W07]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const page : {8U, 16U, 32U, 64U, 128U})
        for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const group : {1U, 8U, 32U})
                specs.push_back(make_spec({.q_heads = 2 * group, .kv_heads = 2, .page = page, .kv = kv, .lens = {13, 1, 200}}));
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
        specs.push_back(make_mla_spec(16, kv, {13, 1, 200}));
    specs.push_back(make_spec({.q_heads = 8, .kv_heads = 2, .window = 50, .lens = {13, 1, 200}}));
    for (ProblemSpec spec : specs) {
        spec.unseen = Unseen::kZero;
        Outputs const clean = require_right(spec);
        for (Unseen const unseen : {Unseen::kNan, Unseen::kInfinity}) {
            spec.unseen = unseen;
            INFO(to_string(spec));
            CHECK(require_right(spec) == clean);
        }
    }
}

TEST_CASE("page-table entries past a request's pages are never followed", "[gpu][W09]") {
    for (std::uint32_t const split : {0U, 1U, 5U}) {
        ProblemSpec spec = make_spec(
            {.q_heads = 8, .kv_heads = 2, .page = 16, .split = split, .lens = {1, 16, 17, 1000}});  // page 0 is always NaN
        spec.spare_table_entries = 5;
        spec.tail = TableTail::kZero;
        Outputs const first = require_right(spec);
        for (TableTail const tail : {TableTail::kMinusOne, TableTail::kIntMax}) {
            spec.tail = tail;
            INFO(to_string(spec));
            CHECK(require_right(spec) == first);
        }
        spec.tail = TableTail::kRandom;
        require_right(spec);
    }
}

TEST_CASE("requests of length 0 give exactly 0 beside others that are right", "[gpu][W39]") {
    for (std::int32_t const out : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3})
        for (TableTail const tail : {TableTail::kZero, TableTail::kMinusOne})
            for (std::uint32_t const split : {0U, 1U, 4U}) {
                ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .out = out, .split = split, .lens = {0, 5, 0, 1000}});
                spec.tail = tail;
                ReferenceCase const c = build_case(spec);
                Outputs const outputs = require_right(c, to_string(spec));
                std::size_t const row = outputs.out.size() / 4;
                for (std::size_t const b : {0U, 2U}) {
                    auto const begin = outputs.out.begin() + static_cast<std::ptrdiff_t>(b * row);
                    CHECK(all_zero(Bytes(begin, begin + static_cast<std::ptrdiff_t>(row))));
                    CHECK(std::isinf(outputs.lse[b * 8]));
                }
                spec.lens = {0, 0, 0};
                CHECK(all_zero(require_right(spec).out));
            }
}

TEST_CASE("lengths of 0 with an empty page table and no pool touch nothing", "[gpu][C01]") {
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3}) {
        ProblemSpec const spec = make_mla_spec(16, kv, std::vector<std::int32_t>(16, 0));
        if (!is_served(spec.params)) continue;
        DeviceProblem problem = make_problem(build_case(spec));
        REQUIRE(problem.args.max_pages == 0);
        REQUIRE(problem.args.page_table == nullptr);
        problem.args.k = nullptr;
        Outputs const outputs = run_problem(problem);
        require_ok(problem.check_memory(outputs));
        CHECK(all_zero(outputs.out));
        for (float const lse : outputs.lse) REQUIRE(lse == -INFINITY);
    }
}

TEST_CASE("a batch of zero is a successful no-op, in a capture too", "[gpu][C20]") {
    xqajit_params const params = make_spec({}).params;
    xqajit_run_args const nothing = XQAJIT_RUN_ARGS_INIT;
    auto const run = [&] { return api(xqajit_run(gpu().service(), &params, &nothing, gpu().stream())); };
    require_ok(run());
    Result<driver::Graph> const graph = driver::Graph::capture(gpu().stream(), run);
    require_ok(graph.status());
    require_ok(graph->launch(gpu().stream()));
    require_ok(gpu().synchronize());
    xqajit_params illegal = params;
    illegal.head_dim = 72;
    CHECK(xqajit_run(gpu().service(), &illegal, &nothing, gpu().stream()) == XQAJIT_INVALID_ARGUMENT);
}
