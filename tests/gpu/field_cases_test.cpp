// What a launch must not confuse: steps of large heads with pages, parts without tokens, its inputs, and the work ahead of it in the stream.
#include "driver/cuda_functions.h"
#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

constexpr std::int32_t kKvTypes[] = {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8};

driver::CudaLibrary const& cuda() {
    Result<driver::CudaLibrary const*> const library = driver::open_cuda();
    require_ok(library.status());
    return **library;
}

CUdeviceptr address(void const* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// Whether device memory still holds what the host has.
template <class T> bool holds(void const* pointer, std::vector<T> const& values) {
    std::vector<T> now(values.size());
    REQUIRE(cuda().cuMemcpyDtoH(now.data(), address(pointer), now.size() * sizeof(T)) == CUDA_SUCCESS);
    return now == values;
}

bool holds_pool(void const* base, KvView const& view, std::int32_t dtype) {
    return holds(static_cast<std::uint8_t const*>(base) - view.offset * bytes_of(dtype), *view.pool);
}

// A place for the output of each of many launches that are not waited for, and their comparison with what they must have written.
class Slots {
public:
    Slots(std::size_t count, std::size_t bytes) : bytes_(bytes), all_(count * bytes) {
        Result<GuardedBuffer> buffer = GuardedBuffer::create(all_.size());
        require_ok(buffer.status());
        buffer_ = std::make_unique<GuardedBuffer>(std::move(*buffer));
    }
    void clear() {
        require_ok(buffer_->fill(0xFF));
        require_ok(gpu().synchronize());
    }
    void* at(std::size_t n) const { return buffer_->data<std::uint8_t>() + n * bytes_; }
    // Slot n must be expected[n % 2].
    void require_alternate(Bytes const (&expected)[2]) {
        require_ok(gpu().synchronize());
        require_ok(buffer_->download(std::as_writable_bytes(std::span(all_))));
        for (std::size_t n = 0; n * bytes_ < all_.size(); ++n) {
            INFO("launch " << n);
            REQUIRE(
                std::equal(expected[n % 2].begin(), expected[n % 2].end(), all_.begin() + static_cast<std::ptrdiff_t>(n * bytes_)));
        }
    }

private:
    std::size_t bytes_;
    Bytes all_;
    std::unique_ptr<GuardedBuffer> buffer_;
};

void require_right_outputs(ReferenceCase const& c, Outputs const& outputs) {
    Comparison const result = compare_with_reference(c, outputs);
    INFO(result.text);
    REQUIRE(result.ok);
}

}  // namespace

TEST_CASE("heads of 256 elements are right with pages of fewer tokens than a step has", "[gpu][W01]") {
    std::vector<ProblemSpec> specs;
    for (auto const& [q, kv] : {std::pair{XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_DEFAULT},
                                {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_DEFAULT},
                                {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3},
                                {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_INT8}})
        for (std::uint32_t const page : {8U, 16U, 32U, 64U, 128U})
            // Every tile that a GPU takes for such heads, the ones of small shared memory among them.
            for (auto const& [group, beam] : {std::pair{1U, 1U}, {4U, 1U}, {16U, 1U}, {64U, 1U}, {4U, 4U}})
                for (std::uint32_t const split : {0U, 1U, 5U}) {
                    ProblemSpec spec = make_spec({.q_heads = 2 * group,
                                                  .kv_heads = 2,
                                                  .dim = 256,
                                                  .page = page,
                                                  .q = q,
                                                  .kv = kv,
                                                  .split = split,
                                                  .lens = {1, 16, 17, 33, 63, 64, 65, 300, 2049}});
                    spec.params.beam_width = beam;
                    specs.push_back(spec);
                }
    require_all_right(specs);
}

TEST_CASE("heads of 256 elements are as right divided as whole, with a window too", "[gpu][C07]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const kv : kKvTypes)
        for (std::uint32_t const group : {2U, 16U, 64U})
            for (std::uint32_t const window : {0U, 33U})
                for (std::uint32_t const split : {0U, 1U, 2U})
                    specs.push_back(make_spec({.q_heads = 2 * group,
                                               .kv_heads = 2,
                                               .dim = 256,
                                               .q = XQAJIT_DTYPE_FP16,
                                               .kv = kv,
                                               .window = window,
                                               .split = split,
                                               .lens = {256}}));
    require_all_right(specs);
}

TEST_CASE("a window with fewer tokens than parts is right in any number of parts, each time", "[gpu][W03]") {
    constexpr std::uint32_t kMostParts = 64;
    for (std::uint32_t const group : {1U, 8U, 64U})
        for (std::uint32_t const window : {1U, 33U, 128U, 1000U}) {
            ProblemSpec const spec = make_spec({.q_heads = 2 * group,
                                                .kv_heads = 2,
                                                .window = window,
                                                .split = kMostParts,
                                                .lens = {32768, 4096, 130, 0, 64, 129}});
            ReferenceCase const c = build_case(spec);
            std::vector<BlockResult> const expected = compute_reference(c, all_blocks(c));
            DeviceProblem problem = make_problem(c);  // with workspace for the most parts
            for (std::uint32_t parts = 1; parts <= kMostParts; ++parts) {
                problem.params.nb_sub_seq = parts;
                Outputs const first = run_problem(problem);
                Comparison const result = compare_outputs(c, first.out, first.lse, expected, bounds_for(c.params.q_dtype));
                INFO(to_string(spec) << " in " << parts << " parts\n" << result.text);
                REQUIRE(result.ok);
                require_ok(problem.check_memory(first));
                for (int n = parts % 8 == 0 ? 50 : 1; n > 0; --n) REQUIRE(run_problem(problem) == first);
            }
        }
}

TEST_CASE("queries and cache are used as given whatever the position kind, and no launch writes to them", "[gpu][W40]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const dim : {128U, 256U})
        for (std::uint32_t const group : {1U, 4U, 64U})
            for (std::int32_t const kv : kKvTypes)
                for (std::uint32_t const q_len : {1U, 4U})
                    specs.push_back(make_spec({.q_heads = 2 * group,
                                               .kv_heads = 2,
                                               .dim = dim,
                                               .page = 16,
                                               .kv = kv,
                                               .spec_dec = q_len > 1 ? XQAJIT_SPEC_DEC_LINEAR : XQAJIT_SPEC_DEC_NONE,
                                               .q_len = q_len,
                                               .lens = {1000, 1, 64, 2049}}));
    specs = only_served(std::move(specs));
    std::vector<xqajit_params> shapes;
    for (ProblemSpec const& spec : specs) shapes.push_back(spec.params);
    require_ok(gpu().prewarm(shapes));
    for (ProblemSpec const& spec : specs) {
        ReferenceCase c = build_case(spec);
        INFO(to_string(spec));
        Outputs first;
        for (std::int32_t const position : {XQAJIT_POSITION_DEFAULT, XQAJIT_POSITION_LEARNED_ABSOLUTE, XQAJIT_POSITION_YARN}) {
            c.params.position = position;
            DeviceProblem problem = make_problem(c);
            Outputs const outputs = run_problem(problem);
            if (position == XQAJIT_POSITION_DEFAULT) {
                require_right_outputs(c, outputs);
                first = outputs;
            }
            CHECK(outputs == first);
            CHECK(holds(problem.args.q, c.q));
            CHECK(holds_pool(problem.args.k, c.k, c.params.kv_dtype));
            CHECK(holds_pool(problem.args.v, c.v, c.params.kv_dtype));
            CHECK(holds(problem.args.page_table, c.page_table));
            CHECK(holds(problem.args.seq_lens, c.seq_lens));
            require_ok(problem.check_memory(outputs));
        }
    }
}

// The launch before gives the second one its queries and scales, two sets of values in turn: one that is read too early is the other set's.
TEST_CASE("a dependent launch reads what the launch before it has written", "[gpu][W45]") {
    constexpr std::size_t kRounds = 500;
    for (std::uint32_t const kv_heads : {8U, 2U})  // mmha's plain MHA, and tensor cores
        for (std::uint32_t const split : {0U, 1U, 4U}) {
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = kv_heads, .split = split, .lens = {700, 1, 64, 2049}});
            std::vector<DeviceProblem> producers;
            for (std::uint64_t const seed : {1U, 2U}) {
                spec.seed = seed;
                producers.push_back(make_problem(build_case(spec)));
            }
            ProblemSpec reader_spec = make_spec(
                {.q_heads = 8, .kv_heads = kv_heads, .kv = XQAJIT_DTYPE_FP8_E4M3, .split = split, .lens = {65, 500, 3, 1000}});
            reader_spec.params.lse = 0;
            ReferenceCase c = build_case(reader_spec);
            LaunchOptions options;
            options.device_scales = true;
            DeviceProblem reader = make_problem(c, options);
            producers[1].args.out = producers[0].args.out;
            producers[1].args.lse = producers[0].args.lse;
            reader.args.q = producers[0].args.out;
            reader.args.k_scale_ptr = producers[0].args.lse;
            reader.args.v_scale_ptr = producers[0].args.lse + 1;
            INFO(to_string(reader_spec));

            Bytes expected[2];
            for (std::size_t const set : {0U, 1U}) {  // one by one
                require_ok(producers[set].launch(gpu()));
                require_ok(gpu().synchronize());
                Outputs const produced = download(producers[0]);
                c.q = produced.out;
                c.k_scale = produced.lse[0];
                c.v_scale = produced.lse[1];
                Outputs const outputs = run_problem(reader);
                require_right_outputs(c, outputs);
                expected[set] = outputs.out;
            }
            REQUIRE(expected[0] != expected[1]);

            Slots slots(kRounds, expected[0].size());
            for (std::int32_t const pdl : {0, 1}) {
                producers[0].params.pdl = producers[1].params.pdl = reader.params.pdl = pdl;
                slots.clear();
                for (std::size_t n = 0; n < kRounds; ++n) {
                    reader.args.out = slots.at(n);
                    require_ok(producers[n % 2].launch(gpu()));
                    require_ok(reader.launch(gpu()));
                }
                INFO("pdl " << pdl);
                slots.require_alternate(expected);
            }
        }
}

TEST_CASE("a dependent launch reads the lengths, pages and queries that copies ahead of it bring", "[gpu][W45]") {
    constexpr std::size_t kRounds = 500;
    for (std::uint32_t const kv_heads : {8U, 2U})
        for (std::int32_t const division : {XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC, XQAJIT_DIVISION_INVARIANT}) {
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = kv_heads, .lens = std::vector<std::int32_t>(4, 704)});
            spec.params.lse = 0;
            spec.params.division = division;
            ReferenceCase sets[2] = {build_case(spec), {}};  // its pages are whole, so that any length sees drawn values
            sets[1] = sets[0];
            sets[0].seq_lens = {704, 1, 64, 300};
            sets[1].seq_lens = {65, 704, 500, 2};
            std::reverse(sets[1].page_table.begin(), sets[1].page_table.end());
            spec.seed = 2;
            sets[1].q = build_case(spec).q;
            INFO(to_string(spec));

            DeviceProblem problem = make_problem(sets[0]);
            std::vector<GuardedBuffer> sources;  // lengths, page table and q of each set
            auto const keep = [&](auto const& values) {
                Result<GuardedBuffer> buffer = GuardedBuffer::from(values);
                require_ok(buffer.status());
                sources.push_back(std::move(*buffer));
            };
            for (ReferenceCase const& set : sets) {
                keep(set.seq_lens);
                keep(set.page_table);
                keep(set.q);
            }
            void const* const targets[] = {problem.args.seq_lens, problem.args.page_table, problem.args.q};
            auto const copy_ahead = [&](std::size_t set) {
                for (std::size_t n = 0; n < std::size(targets); ++n) {
                    GuardedBuffer const& source = sources[set * std::size(targets) + n];
                    REQUIRE(cuda().cuMemcpyDtoDAsync(address(targets[n]), address(source.data()), source.bytes(), gpu().stream()) ==
                            CUDA_SUCCESS);
                }
            };

            Bytes expected[2];
            for (std::size_t const set : {0U, 1U}) {
                copy_ahead(set);
                require_ok(gpu().synchronize());
                Outputs const outputs = run_problem(problem);
                require_right_outputs(sets[set], outputs);
                expected[set] = outputs.out;
            }
            REQUIRE(expected[0] != expected[1]);

            Slots slots(kRounds, expected[0].size());
            for (std::int32_t const pdl : {0, 1}) {
                problem.params.pdl = pdl;
                slots.clear();
                for (std::size_t n = 0; n < kRounds; ++n) {
                    problem.args.out = slots.at(n);
                    copy_ahead(n % 2);
                    require_ok(problem.launch(gpu()));
                }
                INFO("pdl " << pdl);
                slots.require_alternate(expected);
            }
        }
}
