// The workspace: exact in size, initialised once, right after any history.
#include "gpu/fixture.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

// Launches of different shapes that share one workspace.
std::vector<ProblemSpec> mixed_specs() {
    std::vector<ProblemSpec> specs = {
        make_spec({.q_heads = 8, .kv_heads = 2, .split = 8, .lens = {3000, 10}}),
        make_spec({.q_heads = 8, .kv_heads = 2, .split = 1, .lens = {3000, 10}}),
        make_spec({.q_heads = 32, .kv_heads = 8, .kv = XQAJIT_DTYPE_FP8_E4M3, .lens = {5000, 1, 33, 700, 700, 700, 2, 64}}),
        make_spec({.q_heads = 64, .kv_heads = 8, .dim = 64, .split = 5, .sinks = true, .lens = {900, 901, 902}}),
        make_mla_spec(16, XQAJIT_DTYPE_DEFAULT, {3000, 100}),
        make_spec({.q_heads = 8, .kv_heads = 2, .spec_dec = XQAJIT_SPEC_DEC_LINEAR, .q_len = 9, .split = 3, .lens = {3000, 10}}),
        make_spec({.q_heads = 8, .kv_heads = 2, .split = 8, .lens = {3000, 10}}),
        make_spec({.q_heads = 8, .kv_heads = 8, .lens = {3000, 10, 0, 700}}),  // the rest: balanced
        make_spec({.q_heads = 16, .kv_heads = 2, .lens = {30000}}),            // two levels of partials
        make_spec({.q_heads = 48, .kv_heads = 4, .dim = 256, .page = 16, .lens = {5000, 64, 65, 1}}),
    };
    specs[1].params.lse = 0;
    specs[2].params.division = XQAJIT_DIVISION_INVARIANT;
    return only_served(std::move(specs));
}

}  // namespace

TEST_CASE("beams count in the workspace, whose size is exact", "[gpu][C14]") {
    for (std::uint32_t const beam : {2U, 4U})
        for (std::uint32_t const batch : {8U, 16U, 32U}) {
            ProblemSpec spec = make_spec({.q_heads = 6, .kv_heads = 6, .dim = 64, .page = 16, .split = 4, .lens = {}});
            for (std::uint32_t b = 0; b < batch; ++b) spec.lens.push_back(static_cast<std::int32_t>(50 + 37 * b % 500));
            spec.params.beam_width = beam;
            if (only_served({spec}).empty()) continue;  // a forced family without beams
            ReferenceCase const c = build_case(spec);
            require_right(c, to_string(spec));  // red zones around exactly the size asked for

            DeviceProblem problem = make_problem(c);
            REQUIRE(problem.args.workspace_size > 0);
            --problem.args.workspace_size;
            require_ok(
                api(xqajit_workspace_init(gpu().service(), problem.args.workspace, problem.args.workspace_size, gpu().stream())));
            CHECK(problem.launch(gpu()).code() == XQAJIT_INVALID_ARGUMENT);
            for (std::uint8_t const byte : download(problem).out) REQUIRE(byte == 0xFF);
        }
}

TEST_CASE("a workspace serves launches of any shapes in any order", "[gpu][C15]") {
    std::vector<ProblemSpec> const specs = mixed_specs();
    std::vector<ReferenceCase> cases;
    std::vector<DeviceProblem> problems;
    std::uint64_t bytes = 0;
    for (ProblemSpec const& spec : specs) {
        cases.push_back(build_case(spec));
        problems.push_back(make_problem(cases.back()));
        bytes = std::max<std::uint64_t>(bytes, problems.back().args.workspace_size);
    }
    Result<GuardedBuffer> shared = GuardedBuffer::create(bytes);
    require_ok(shared.status());
    auto const initialise = [&] {
        require_ok(gpu().synchronize());
        require_ok(api(xqajit_workspace_init(gpu().service(), shared->data(), bytes, gpu().stream())));
    };
    initialise();
    for (int round = 0; round < 4; ++round) {
        if (round == 2) {  // a foreign write, and the documented remedy
            require_ok(shared->fill(0xFF));
            initialise();
        }
        for (std::size_t n = 0; n < problems.size(); ++n) {
            std::size_t const i = round % 2 ? problems.size() - 1 - n : n;
            problems[i].args.workspace = shared->data();
            problems[i].args.workspace_size = bytes;
            Outputs const outputs = run_problem(problems[i]);
            Comparison const result = compare_with_reference(cases[i], outputs);
            INFO("round " << round << ": " << to_string(specs[i]) << "\n" << result.text);
            CHECK(result.ok);
            require_ok(problems[i].check_memory(outputs));
        }
    }
    require_ok(shared->check_zones("shared workspace"));
    require_ok(api(xqajit_workspace_release(gpu().service(), shared->data())));
}

TEST_CASE("after a launch that was cut short none hangs, and one initialisation restores the workspace", "[gpu][C15]") {
    for (ProblemSpec const& spec : mixed_specs()) {
        DeviceProblem problem = make_problem(build_case(spec));
        if (problem.args.workspace_size == 0) continue;
        Outputs const right = run_problem(problem);
        // Counters as blocks leave them that were killed before the last of their unit, and what no launch leaves.
        for (std::uint32_t const left : {1U, 2U, 7U, 8U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
            INFO(to_string(spec) << " counters " << left);
            std::vector<std::uint32_t> const words(problem.args.workspace_size / 4, left);
            require_ok(problem.workspace().upload(std::as_bytes(std::span(words))));
            require_ok(problem.run(gpu()));  // ends, whatever it computes, and writes nothing but its own
            require_ok(problem.workspace().check_zones("workspace"));
            require_ok(problem.prepare(gpu()));
            CHECK(run_problem(problem) == right);
        }
    }
}

TEST_CASE("no buffer needs preparing but the workspace, and that is checked", "[gpu][A05]") {
    ProblemSpec const spec = make_spec({.q_heads = 8, .kv_heads = 2, .split = 6, .lens = {3000, 10, 0}});
    ReferenceCase const c = build_case(spec);
    for (std::uint8_t const fill : {0xFF, 0x7F, 0x00}) {
        LaunchOptions options;
        options.workspace_fill = fill;
        require_right(c, to_string(spec), options);  // outputs start as NaN, and it runs twice
    }
    Result<DeviceProblem> problem = DeviceProblem::upload(gpu(), c);
    require_ok(problem.status());
    require_ok(api(xqajit_prepare(gpu().service(), &problem->params)));
    Status const refused = problem->launch(gpu());
    INFO(refused.to_string());
    CHECK(refused.code() == XQAJIT_INVALID_ARGUMENT);
    require_ok(problem->prepare(gpu()));
    require_ok(problem->run(gpu()));
    require_ok(api(xqajit_workspace_release(gpu().service(), problem->args.workspace)));
    CHECK(problem->launch(gpu()).code() == XQAJIT_INVALID_ARGUMENT);
}
