// Launches inside stream capture.
#include "gpu/fixture.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

// A captured launch that may be replayed with other lengths.
class Captured {
public:
    explicit Captured(DeviceProblem& problem)
        : problem_(problem), graph_(driver::Graph::capture(gpu().stream(), [&] { return problem.launch(gpu()); })) {
        require_ok(graph_.status());
    }
    Outputs replay() {
        require_ok(problem_.poison_outputs());
        require_ok(gpu().synchronize());
        require_ok(graph_->launch(gpu().stream()));
        require_ok(gpu().synchronize());
        return download(problem_);
    }

private:
    DeviceProblem& problem_;
    Result<driver::Graph> graph_;
};

// The same pool with other lengths.
void require_replay_right(Captured& graph, DeviceProblem& problem, ReferenceCase c, std::vector<std::int32_t> const& lens) {
    c.seq_lens = lens;
    require_ok(problem.set_seq_lens(lens));
    Outputs const outputs = graph.replay();
    Comparison const result = compare_with_reference(c, outputs);
    INFO(result.text);
    CHECK(result.ok);
    require_ok(problem.check_memory(outputs));
}

}  // namespace

TEST_CASE("a captured launch stays right when lengths change", "[gpu][W37]") {
    constexpr std::int32_t kLongest = 100000;
    for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT})
        for (std::uint32_t const window : {0U, 128U}) {
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .lens = std::vector<std::int32_t>(4, kLongest)});
            spec.max_pool_pages = 512;
            spec.params.division = division;
            ReferenceCase c = build_case(spec);  // the pool is filled without the window: every slot of it is seen by some length
            c.params.sliding_window = window;
            DeviceProblem problem = make_problem(c);
            require_ok(problem.set_seq_lens({64, 64, 64, 64}));
            Captured graph(problem);
            for (std::vector<std::int32_t> const& lens : {std::vector<std::int32_t>{64, 64, 64, 64},
                                                          {1, 64, 65, 4097},
                                                          {kLongest, 1, 1, 1},
                                                          {0, 0, 0, 0},
                                                          {64, 64, 64, 64},
                                                          {4097, kLongest, 0, 8191}}) {
                ReferenceCase now = c;
                for (std::size_t b = 0; window && b < lens.size(); ++b)  // pages that the window has left are gone
                    for (std::int64_t page = 0; (page + 1) * 64 <= lens[b] - std::int64_t{window}; ++page)
                        now.page_table[b * static_cast<std::size_t>(c.page_table_stride) + static_cast<std::size_t>(page)] = -1;
                require_ok(problem.set_page_table(now.page_table));
                require_replay_right(graph, problem, now, lens);
            }
        }
}

TEST_CASE("a replay with other lengths has the bits of a launch with them", "[gpu][W37][W34]") {
    Random random(37);
    constexpr std::int32_t kLongest = 30000;
    for (std::uint32_t const q_heads : {2U, 16U})  // mmha's plain MHA, and tensor cores
        for (std::size_t const batch : {1U, 5U, 40U})
            for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT}) {
                ProblemSpec spec =
                    make_spec({.q_heads = q_heads, .kv_heads = 2, .lens = std::vector<std::int32_t>(batch, kLongest)});
                spec.max_pool_pages = 512;
                spec.params.division = division;
                ReferenceCase c = build_case(spec);
                DeviceProblem problem = make_problem(c);
                require_ok(problem.set_seq_lens(std::vector<std::int32_t>(batch, 1)));
                Captured graph(problem);
                for (int round = 0; round < 6; ++round) {
                    std::vector<std::int32_t> lens(batch, round == 0 ? kLongest : 0);
                    for (std::int32_t& len : lens)
                        if (round > 1) len = static_cast<std::int32_t>(random.between(0, round % 2 ? kLongest : 300));
                    if (round == 1) lens[batch / 2] = kLongest;
                    INFO(q_heads << " heads, batch " << batch << ", division " << division << ", round " << round);
                    c.seq_lens = lens;
                    require_ok(problem.set_seq_lens(lens));
                    Outputs const replayed = graph.replay();
                    CHECK(run_problem(problem) == replayed);
                    CHECK(graph.replay() == replayed);
                    auto const middle = static_cast<std::uint32_t>(batch / 2);
                    Comparison const right = compare_with_reference(c, replayed, std::vector<Block>{{0, 0}, {middle, 1}});
                    INFO(right.text);
                    CHECK(right.ok);
                    require_ok(problem.check_memory(replayed));
                }
            }
}

TEST_CASE("a graph captured for a padded batch is right with fewer live requests", "[gpu][C03]") {
    for (std::uint32_t const size : {4U, 8U}) {
        std::vector<std::int32_t> const lens(size, 900);
        for (TableTail const tail : {TableTail::kMinusOne, TableTail::kIntMax, TableTail::kZero}) {
            ProblemSpec spec = make_spec({.q_heads = 16, .kv_heads = 2, .page = 16, .lens = lens});
            spec.tail = tail;
            ReferenceCase const c = build_case(spec);
            DeviceProblem problem = make_problem(c);
            Captured graph(problem);
            for (std::uint32_t live = 1; live <= size; ++live) {
                std::vector<std::int32_t> now(size, 0);
                std::vector<std::int32_t> table = c.page_table;
                for (std::uint32_t b = 0; b < live; ++b) now[b] = static_cast<std::int32_t>(1 + 123 * b);
                for (std::size_t n = live * static_cast<std::size_t>(c.page_table_stride); n < table.size(); ++n)
                    table[n] = tail == TableTail::kZero ? 0 : tail == TableTail::kMinusOne ? -1 : 0x7FFFFFFF;
                require_ok(problem.set_page_table(table));
                require_replay_right(graph, problem, c, now);
            }
        }
    }
}

TEST_CASE("an unprepared shape is refused in a capture, which goes on", "[gpu]") {
    DeviceProblem prepared = make_problem(build_case(make_spec({.q_heads = 8, .kv_heads = 2, .lens = {100, 50}})));
    DeviceProblem unprepared = make_problem(build_case(make_spec({.q_heads = 8, .kv_heads = 2, .dim = 96, .lens = {100, 50}})));
    require_ok(gpu().restart_service());  // forgets what was loaded
    require_ok(prepared.prepare(gpu()));
    Outputs const eager = run_problem(prepared);
    Status refusal;
    Result<driver::Graph> const graph = driver::Graph::capture(gpu().stream(), [&]() -> Status {
        refusal = unprepared.launch(gpu());
        return prepared.launch(gpu());
    });
    CHECK(refusal.code() == XQAJIT_NOT_PREPARED);
    require_ok(graph.status());
    require_ok(prepared.poison_outputs());
    require_ok(gpu().synchronize());
    require_ok(graph->launch(gpu().stream()));
    require_ok(gpu().synchronize());
    CHECK(download(prepared) == eager);
    require_ok(unprepared.prepare(gpu()));
    run_problem(unprepared);
}
