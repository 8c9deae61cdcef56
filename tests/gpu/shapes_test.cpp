// Every shape that the library says it takes is computed right.
#include <algorithm>

#include "gpu/fixture.h"
#include "reference/codec.h"

using namespace xqajit;
using namespace xqajit::testing;

namespace {

constexpr std::int32_t kKvTypes[] = {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8};

// A shape is refused before a launch, by a message that has the field and its value.
void require_refused(xqajit_params const& params, std::string const& field, std::string const& value) {
    INFO(field << " " << value);
    CHECK(xqajit_prepare(gpu().service(), &params) == XQAJIT_INVALID_ARGUMENT);
    std::string const text = xqajit_last_error();
    INFO(text);
    CHECK(text.find(field + " is " + value) != std::string::npos);
}

}  // namespace

TEST_CASE("every accepted page size is right and every other is refused by name", "[gpu][A01]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const page : {8U, 16U, 32U, 64U, 128U, 256U, 512U, 1024U})
        for (std::int32_t const kv : kKvTypes)
            for (std::uint32_t const q_heads : {8U, 48U})
                specs.push_back(make_spec({.q_heads = q_heads, .kv_heads = 2, .page = page, .kv = kv, .lens = {1, 1100, 64, 129}}));
    require_all_right(specs);
    for (std::uint32_t const page : {1U, 2U, 3U, 48U, 768U, 2048U}) {
        require_refused(make_spec({.page = page}).params, "page_size", std::to_string(page));
    }
}

TEST_CASE("every head dimension in steps of 16 is right and every other is refused by name", "[gpu][A02]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t dim = 16; dim <= 256; dim += 16)
        for (auto const& [q, kv] : {std::pair{XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_DEFAULT},
                                    {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_DEFAULT},
                                    {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3},
                                    {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_INT8}})
            for (std::uint32_t const q_heads : {6U, 34U})
                specs.push_back(
                    make_spec({.q_heads = q_heads, .kv_heads = 2, .dim = dim, .page = 16, .q = q, .kv = kv, .lens = {1, 300, 33}}));
    require_all_right(specs);
    for (std::uint32_t const dim : {8U, 24U, 72U, 100U, 264U, 272U, 512U})
        require_refused(make_spec({.dim = dim}).params, "head_dim", std::to_string(dim));
    xqajit_params narrow_v = make_spec({.dim = 192}).params;
    narrow_v.head_dim_v = 128;
    require_refused(narrow_v, "head_dim_v", "128");
}

TEST_CASE("multi-head latent attention takes any number of heads", "[gpu][A04]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const heads : {1U, 8U, 16U, 32U, 48U, 64U, 96U, 128U})
        for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
            for (std::uint32_t const q_len : {1U, 2U}) {
                ProblemSpec spec = make_mla_spec(heads, kv, {1, 700, 65});
                spec.params.q_len = q_len;
                spec.params.spec_dec = q_len > 1 ? XQAJIT_SPEC_DEC_LINEAR : XQAJIT_SPEC_DEC_NONE;
                specs.push_back(spec);
            }
    require_all_right(specs);
}

TEST_CASE("group sizes that are no power of two are right", "[gpu][W29]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const heads : {20U, 24U, 28U})
        for (std::uint32_t const dim : {64U, 128U, 256U})
            for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
                for (bool const sinks : {false, true})
                    for (std::uint32_t const split : {1U, 4U})
                        specs.push_back(make_spec({.q_heads = heads,
                                                   .kv_heads = 4,
                                                   .dim = dim,
                                                   .kv = kv,
                                                   .split = split,
                                                   .sinks = sinks,
                                                   .lens = {1, 600, 64}}));
    require_all_right(specs);
}

TEST_CASE("int8 keys and values have scales of their own, and all 256 codes count", "[gpu][W26]") {
    for (bool const shared : {true, false})
        for (bool const on_device : {false, true}) {
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .kv = XQAJIT_DTYPE_INT8, .lens = {500, 1, 77}});
            spec.k_scale = 20.0F / 127;
            spec.v_scale = shared ? spec.k_scale : 0.2F / 127;
            ReferenceCase c = build_case(spec);
            for (std::uint32_t b = 0; b < c.batch; ++b)
                for (std::int64_t t = 0; t < c.seq_lens[b]; ++t) {
                    auto const d = static_cast<std::uint32_t>(t % 128);
                    set_kv(c, false, b, t, t % 2, d, t % 3 ? -1e9 : 1e9);  // saturates to -128 and 127
                    set_kv(c, true, b, t, t % 2, d, t % 3 ? -1e9 : 1e9);
                }
            LaunchOptions options;
            options.device_scales = on_device;
            require_right(c, to_string(spec), options);
        }
}

TEST_CASE("every length is right, not just round ones", "[gpu][W20]") {
    std::vector<std::int32_t> lens(1100);
    for (std::size_t n = 0; n < lens.size(); ++n) lens[n] = static_cast<std::int32_t>(n) + 1;
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const group : {1U, 2U, 4U, 8U, 16U, 32U})
        for (std::uint32_t const page : {16U, 32U, 64U, 128U}) {
            ProblemSpec spec =
                make_spec({.q_heads = group, .kv_heads = 1, .page = page, .kv = XQAJIT_DTYPE_FP8_E4M3, .lens = lens});
            spec.max_pool_pages = 16384 / page;
            specs.push_back(spec);
        }
    std::vector<xqajit_params> shapes;
    for (ProblemSpec const& spec : specs) shapes.push_back(spec.params);
    require_ok(gpu().prewarm(shapes));
    for (ProblemSpec const& spec : specs) {
        ReferenceCase const c = build_case(spec);
        require_right(c, to_string(spec), {}, all_blocks(c));
    }
}

TEST_CASE("a context of a million tokens takes no more shared memory than a short one", "[gpu][C17]") {
    for (std::int32_t const kv : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
        for (std::int32_t const len : {8192, 18000, 65536, 262144, 1048576}) {
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 1, .kv = kv, .lens = {len}});
            spec.max_pool_pages = 1024;
            require_right(spec);
        }
}

TEST_CASE("a batch beyond one axis of a grid is right, and beyond the limit it is refused", "[gpu][W14]") {
    for (std::size_t const batch : {65535U, 65536U}) {
        std::vector<std::int32_t> lens(batch);
        for (std::size_t n = 0; n < batch; ++n) lens[n] = static_cast<std::int32_t>(1 + n % 64);
        ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 1, .page = 16, .lens = lens});
        spec.max_pool_pages = 128;
        require_right(spec);
    }
    DeviceProblem problem = make_problem(build_case(make_spec({})));
    problem.args.batch = 70000;
    require_ok(problem.poison_outputs());
    CHECK(problem.launch(gpu()).code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(std::string(xqajit_last_error()).find("batch is 70000") != std::string::npos);
    for (std::uint8_t const byte : download(problem).out) REQUIRE(byte == 0xFF);
}

TEST_CASE("soft cap bends the scaled scores before the mask", "[gpu][W42]") {
    std::vector<ProblemSpec> specs;
    for (std::uint32_t const window : {0U, 64U})
        for (float const softcap : {0.0F, 5.0F, 30.0F, 50.0F, 0.0F}) {  // back to 0: the value alone changes between calls
            ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 2, .window = window, .lens = {1, 100, 1000, 65}});
            spec.params.softcap = softcap;
            spec.params.qk_scale = 12.0F / 11.3F;
            specs.push_back(spec);
        }
    require_all_right(specs);
}

TEST_CASE("adversarial scores stay within the bounds", "[gpu]") {
    std::vector<ProblemSpec> specs;
    for (Draw const draw : {Draw::kEqualKeys, Draw::kEqualLarge, Draw::kDominantFirst, Draw::kDominantLast, Draw::kDominantMiddle,
                            Draw::kRamp, Draw::kLarge})
        for (std::int32_t const q : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP16})
            for (std::int32_t const kv : kKvTypes)
                for (std::uint32_t const split : {0U, 1U, 3U, 8U}) {
                    ProblemSpec spec = make_spec({.q_heads = 8,
                                                  .kv_heads = 2,
                                                  .page = 32,
                                                  .q = q,
                                                  .kv = kv,
                                                  .split = split,
                                                  .lens = {1, 33, 1000, 2049, 513}});
                    spec.draw = draw;
                    specs.push_back(spec);
                }
    require_all_right(specs);
}

TEST_CASE("scales come from the host or from the device, which wins", "[gpu][W23]") {
    for (std::int32_t const kv : {XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
        for (std::int32_t const out : {XQAJIT_DTYPE_DEFAULT, XQAJIT_DTYPE_FP8_E4M3})
            for (bool const on_device : {false, true}) {
                LaunchOptions options;
                options.device_scales = on_device;
                require_right(make_spec({.q_heads = 8, .kv_heads = 2, .kv = kv, .out = out, .lens = {1, 600, 64}}), options);
            }
}

TEST_CASE("fp8 math sums many equal weights as far as float32 does", "[gpu][fp8]") {
    // What tensor cores add to a large sum may vanish: of one part, in which every token weighs the same, and V has a mean.
    ProblemSpec spec = make_spec({.q_heads = 8, .kv_heads = 1, .dim = 128, .page = 64, .split = 1, .lens = {65536}});
    spec.params.q_dtype = spec.params.out_dtype = XQAJIT_DTYPE_BF16;
    spec.params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    spec.params.numeric = XQAJIT_NUMERIC_FP8;
    if (only_served({spec}).empty()) return;
    ReferenceCase c = build_case(spec);
    std::fill(c.q.begin(), c.q.end(), std::uint8_t{0});
    std::uint8_t const one = static_cast<std::uint8_t>(encode(XQAJIT_DTYPE_FP8_E4M3, 1));
    std::fill(c.v.pool->begin(), c.v.pool->end(), one);
    if (c.k.pool != c.v.pool) std::fill(c.k.pool->begin(), c.k.pool->end(), one);
    require_right(c, to_string(spec));
}
