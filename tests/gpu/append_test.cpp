// input_kv: what the launch stores, byte for byte, and what it attends. Only gmma has it, so that it is asked for by name here, whatever
// XQAJIT_FORCE_KERNEL says.
#include <algorithm>

#include "gpu/fixture.h"
#include "reference/append.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

constexpr std::int32_t kStyles[] = {XQAJIT_ROPE_NONE, XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ};

// What needs no input_kv and still is refused has no GPU of its own here.
void require_gmma() {
    xqajit_params const plain = make_spec({}).params;
    if (xqajit_supports(gmma().service(), &plain, nullptr) != XQAJIT_OK) skip_test(xqajit_last_error());
}

ProblemSpec appending(Shape const& shape, std::int32_t style, std::uint32_t rotary_dim = 0) {
    ProblemSpec spec = make_spec(shape);
    spec.params.input_kv = 1;
    spec.params.rope_style = style;
    spec.params.rotary_dim = style == XQAJIT_ROPE_NONE ? 0 : rotary_dim;
    return spec;
}

void require_appended(ReferenceCase const& c, std::string const& line, LaunchOptions const& options = {}) {
    require_gmma();
    Verdict const verdict = run_and_check(gmma(), c, options);
    INFO(line << "\n" << verdict.text);
    CHECK(verdict.ok);
}

void require_all_appended(std::vector<ProblemSpec> const& specs, LaunchOptions const& options = {}) {
    require_gmma();
    std::vector<xqajit_params> shapes;
    for (ProblemSpec const& spec : specs) shapes.push_back(spec.params);
    require_ok(gmma().prewarm(shapes));
    for (ProblemSpec const& spec : specs) require_appended(build_case(spec), to_string(spec), options);
}

}  // namespace

TEST_CASE("the new token is stored and attended in every slot of a page, of every type and pairing", "[gpu][append]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const page : {0U, 8U, 16U, 32U, 64U, 128U})
        for (std::int32_t const style : kStyles)
            for (auto const& [q, kv] : {std::pair{XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_DEFAULT},
                                        {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_DEFAULT},
                                        {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3},
                                        {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_FP8_E4M3},
                                        {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_INT8}}) {
                auto const p = static_cast<std::int32_t>(page == 0 ? 64 : page);
                specs.push_back(appending({.q_heads = 16,
                                           .kv_heads = 2,
                                           .page = page,
                                           .q = q,
                                           .kv = kv,
                                           .lens = {0, 1, 2, p - 1, p, p + 1, 63, 64, 65, 2 * p, 2 * p + 1, 127, 129, 700}},
                                          style));
            }
    require_all_appended(specs);
}

TEST_CASE("a part of each head is rotated, and nothing past it or past the table is touched", "[gpu][append][W40]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const dim : {16U, 32U, 64U, 80U, 128U, 192U, 256U})
        for (std::uint32_t const rotary_dim : {16U, std::max(16U, dim / 2 / 16 * 16), dim})
            for (std::int32_t const style : {XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ})
                for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
                    specs.push_back(appending({.q_heads = 6,
                                               .kv_heads = 2,
                                               .dim = dim,
                                               .page = 16,
                                               .q = XQAJIT_DTYPE_FP16,
                                               .kv = kv,
                                               .lens = {1, 300, 33}},
                                              style, rotary_dim));
    require_all_appended(specs);
}

TEST_CASE("the block that has the last token stores it, however the tokens are divided", "[gpu][append]") {
    std::vector<ProblemSpec> specs;
    auto const add = [&](std::uint32_t q_heads, std::uint32_t kv_heads, std::int32_t division, std::uint32_t split,
                         std::vector<std::int32_t> const& lens) {
        ProblemSpec spec = appending({.q_heads = q_heads, .kv_heads = kv_heads, .page = 32, .lens = lens}, XQAJIT_ROPE_NEOX);
        spec.params.division = division;
        spec.params.nb_sub_seq = split;
        specs.push_back(spec);
    };
    std::vector<std::int32_t> many(150);
    for (std::size_t n = 0; n < many.size(); ++n) many[n] = static_cast<std::int32_t>(n * 7 % 400);
    for (std::vector<std::int32_t> const& lens :
         {std::vector<std::int32_t>{4097}, {8192}, {129}, {1, 64, 65, 4097, 0, 3000}, {513, 512, 511, 1024, 1025}, many}) {
        for (std::uint32_t const split : {1U, 2U, 3U, 8U, 17U, 64U}) add(8, 1, XQAJIT_DIVISION_STATIC, split, lens);
        for (std::uint32_t const group : {1U, 4U, 9U, 16U, 20U, 64U}) {
            add(4 * group, 4, XQAJIT_DIVISION_BALANCED, 0, lens);
            add(group, 1, XQAJIT_DIVISION_INVARIANT, 0, lens);
        }
    }
    require_all_appended(specs);
}

TEST_CASE("row blocks of one KV head store the same token, and each attends it", "[gpu][append]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const group : {17U, 33U, 71U, 128U})
        for (std::uint32_t const dim : {64U, 128U, 256U})
            for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
                specs.push_back(appending(
                    {.q_heads = 2 * group, .kv_heads = 2, .dim = dim, .page = 16, .kv = kv, .lens = {1, 0, 65, 700, 2048}},
                    group % 2 ? XQAJIT_ROPE_NEOX : XQAJIT_ROPE_GPTJ, 64));
    std::erase_if(specs,
                  [](ProblemSpec const& spec) { return xqajit_supports(gmma().service(), &spec.params, nullptr) != XQAJIT_OK; });
    require_all_appended(specs);
}

TEST_CASE("the append goes with windows, sinks, caps, fp8 output, scales on the device and every layout", "[gpu][append]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        for (std::uint32_t const window : {0U, 1U, 5U, 64U, 129U})
            for (Pooling const pooling : {Pooling::kSeparate, Pooling::kInterleaved, Pooling::kLayerMajor}) {
                bool const odd = specs.size() % 2 == 1;
                ProblemSpec spec = appending({.q_heads = 8,
                                              .kv_heads = 2,
                                              .page = odd ? 16U : 64U,
                                              .kv = kv,
                                              .out = odd ? XQAJIT_DTYPE_FP8_E4M3 : XQAJIT_DTYPE_DEFAULT,
                                              .window = window,
                                              .sinks = !odd,
                                              .lens = {0, 1, 65, 1000, 128}},
                                             odd ? XQAJIT_ROPE_GPTJ : XQAJIT_ROPE_NEOX, 64);
                spec.params.softcap = odd ? 30.0F : 0.0F;
                spec.layout = odd ? Layout::kNhd : Layout::kHnd;
                spec.pooling = pooling;
                spec.padding = odd ? 1 : 0;
                spec.row_padding = odd ? 16 : 0;
                spec.own_v_table = !odd;
                specs.push_back(spec);
            }
    LaunchOptions options;
    options.device_scales = true;
    require_all_appended(specs);
    require_all_appended(specs, options);
}

TEST_CASE("a position far into the table is the one that is rotated by", "[gpu][append][W40]") {
    std::vector<ProblemSpec> specs;
    for (std::int32_t const style : {XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ})
        specs.push_back(appending({.q_heads = 8, .kv_heads = 1, .dim = 64, .lens = {131072, 1}}, style, 32));
    require_all_appended(specs);
}

TEST_CASE("requests without a token store nothing, and need no cache", "[gpu][append][C01]") {
    for (std::int32_t const style : kStyles)
        require_appended(build_case(appending({.q_heads = 8, .kv_heads = 2, .lens = {0, 0, 0}}, style)), "three empty requests");
}

TEST_CASE("a token that one step stores is a key of the next", "[gpu][append]") {
    require_gmma();
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3}) {
        constexpr std::int32_t kSteps = 10;
        ReferenceCase c =
            build_case(appending({.q_heads = 16, .kv_heads = 2, .page = 8, .kv = kv, .lens = {70, 12, 300}}, XQAJIT_ROPE_NEOX));
        for (std::int32_t& len : c.seq_lens) len -= kSteps;
        Result<DeviceProblem> problem = DeviceProblem::upload(gmma(), c);
        require_ok(problem.status());
        require_ok(problem->prepare(gmma()));
        for (std::int32_t step = 0; step < kSteps; ++step) {
            for (std::int32_t& len : c.seq_lens) ++len;
            require_ok(problem->set_seq_lens(c.seq_lens));
            require_ok(problem->run(gmma()));
            Result<ReferenceCase> stored = problem->as_stored(c);
            require_ok(stored.status());
            Outputs const outputs = download(*problem);
            Comparison const comparison = compare_with_reference(*stored, outputs, {}, 0, bounds_of(c));
            INFO("step " << step << ": " << comparison.text);
            CHECK(comparison.ok);
            c.k = stored->k;
            c.v = stored->v;
        }
    }
}

TEST_CASE("steps that are launched at once see what those before them have stored", "[gpu][append]") {
    require_gmma();
    for (std::uint32_t const page : {0U, 8U, 64U}) {
        constexpr std::int32_t kSteps = 40;
        ProblemSpec spec = appending({.q_heads = 16, .kv_heads = 2, .page = page, .lens = {70, 41, 300}}, XQAJIT_ROPE_NONE);
        spec.params.pdl = 1;
        ReferenceCase c = build_case(spec);
        for (std::int32_t& len : c.seq_lens) len -= kSteps;
        Result<DeviceProblem> problem = DeviceProblem::upload(gmma(), c);
        require_ok(problem.status());
        require_ok(problem->prepare(gmma()));
        std::vector<GuardedBuffer> lens;
        for (std::int32_t step = 0; step < kSteps; ++step) {
            for (std::int32_t& len : c.seq_lens) ++len;
            Result<GuardedBuffer> buffer = GuardedBuffer::from(c.seq_lens);
            require_ok(buffer.status());
            lens.push_back(std::move(*buffer));
            if (step + 1 == kSteps) break;
            ReferenceCase const stored = appended(c);  // without rotation exactly what the device stores
            c.k = stored.k;
            c.v = stored.v;
        }
        require_ok(gmma().synchronize());
        for (GuardedBuffer const& buffer : lens) {
            problem->args.seq_lens = buffer.data<std::int32_t>();
            require_ok(problem->launch(gmma()));
        }
        require_ok(gmma().synchronize());
        Result<ReferenceCase> const stored = problem->as_stored(c);
        require_ok(stored.status());
        Comparison const comparison = compare_with_reference(*stored, download(*problem));
        INFO(to_string(spec) << "\n" << comparison.text);
        CHECK(comparison.ok);
    }
}
