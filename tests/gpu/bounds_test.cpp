// No launch reads past the arrays it is given.
#include "gpu/edge_memory.h"
#include "gpu/fixture.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

// Puts an array where the first byte past it is a fault.
template <class T> class AtTheEdge {
public:
    AtTheEdge(T const*& pointer, std::vector<T> const& values) {
        if (values.empty()) return;
        Result<EdgeMemory> memory = EdgeMemory::holding(values);
        require_ok(memory.status());
        memory_ = std::make_unique<EdgeMemory>(std::move(*memory));
        pointer = memory_->data<T>();
    }

private:
    std::unique_ptr<EdgeMemory> memory_;
};

void require_within(Gpu& gpu, ReferenceCase const& c, std::string const& line) {
    INFO(line);
    Result<DeviceProblem> problem = DeviceProblem::upload(gpu, c);
    require_ok(problem.status());
    AtTheEdge const sinks(problem->args.sinks, c.sinks);
    AtTheEdge const lens(problem->args.seq_lens, c.seq_lens);
    AtTheEdge const k_table(problem->args.page_table, c.page_table);
    AtTheEdge const v_table(problem->args.v_page_table, c.v_page_table);
    AtTheEdge const rows(problem->args.cu_q_len, c.cu_q_len);
    AtTheEdge const mask(problem->args.packed_mask, c.packed_mask);
    require_ok(problem->prepare(gpu));
    require_ok(problem->run(gpu));
    Comparison const right = compare_with_reference(c, download(*problem));
    INFO(right.text);
    CHECK(right.ok);
}

}  // namespace

TEST_CASE("sinks, lengths, page tables and masks are read to their last element and no further, in groups of every size",
          "[gpu][C12]") {
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
        for (std::uint32_t const group : {1U, 2U, 3U, 5U, 6U, 7U, 12U, 20U, 40U})
            for (std::int32_t const spec_dec : {XQAJIT_SPEC_DEC_NONE, XQAJIT_SPEC_DEC_TREE}) {
                ProblemSpec const spec = make_spec({.q_heads = 2 * group,
                                                    .kv_heads = 2,
                                                    .dim = 64,
                                                    .page = 16,
                                                    .kv = kv,
                                                    .spec_dec = spec_dec,
                                                    .q_len = spec_dec == XQAJIT_SPEC_DEC_NONE ? 1U : 3U,
                                                    .sinks = true,
                                                    .lens = {333, 5, 400}});
                ReferenceCase const c = build_case(spec);
                require_within(gpu(), c, to_string(spec));
                if (xqajit_supports(gmma().service(), &spec.params, nullptr) == XQAJIT_OK)
                    require_within(gmma(), c, to_string(spec) + " on gmma");
            }
}
