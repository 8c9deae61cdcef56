#include "gpu/fixture.h"

#include <cmath>

#include "reference/codec.h"

namespace xqajit::testing {

Gpu& gpu() {
    // Never destroyed: when static objects go, the driver may be gone.
    static Gpu* const opened = [] {
        Result<std::unique_ptr<Gpu>> result = Gpu::open();
        if (!result.ok() && result.status().code() == XQAJIT_UNAVAILABLE) skip_test(result.status().message().c_str());
        require_ok(result.status());
        return result->release();
    }();
    return *opened;
}

Gpu& gmma() {
    gpu();
    static Gpu* const opened = [] {
        Result<std::unique_ptr<Gpu>> result = Gpu::open("gmma");
        require_ok(result.status());
        return result->release();
    }();
    return *opened;
}

ProblemSpec make_spec(Shape const& shape) {
    gpu();
    ProblemSpec spec;
    xqajit_params& p = spec.params;
    p.q_dtype = shape.q;
    p.kv_dtype = shape.kv;
    p.out_dtype = shape.out;
    p.num_q_heads = shape.q_heads;
    p.num_kv_heads = shape.kv_heads;
    p.head_dim = shape.dim;
    p.page_size = shape.page;
    p.spec_dec = shape.spec_dec;
    p.q_len = shape.q_len;
    p.sliding_window = shape.window;
    p.sinks = shape.sinks;
    p.lse = 1;
    if (shape.split) {
        p.division = XQAJIT_DIVISION_STATIC;
        p.nb_sub_seq = shape.split;
    }
    spec.lens = shape.lens;
    spec.layout = Layout::kHnd;
    if (shape.kv == XQAJIT_DTYPE_FP8_E4M3) {
        spec.k_scale = 0.5F;
        spec.v_scale = 2;
    }
    if (shape.kv == XQAJIT_DTYPE_INT8) {
        spec.k_scale = 0.03F;
        spec.v_scale = 0.02F;
    }
    if (shape.out == XQAJIT_DTYPE_FP8_E4M3) spec.out_scale_rcp = 8;
    return spec;
}

ProblemSpec make_mla_spec(std::uint32_t q_heads, std::int32_t kv, std::vector<std::int32_t> lens) {
    ProblemSpec spec = make_spec({.q_heads = q_heads, .kv_heads = 1, .dim = 576, .page = 64, .kv = kv, .lens = std::move(lens)});
    spec.params.mla = 1;
    spec.params.head_dim_v = 512;
    spec.params.qk_scale = 0.1352337788608801F;
    return spec;
}

bool is_served(xqajit_params const& params) {
    Result<bool> const refused = gpu().refused_by_force(params);
    require_ok(refused.status());
    return !*refused;
}

std::vector<ProblemSpec> only_served(std::vector<ProblemSpec> specs) {
    std::erase_if(specs, [](ProblemSpec const& spec) { return !is_served(spec.params); });
    return specs;
}

Outputs require_right(ReferenceCase const& c, std::string const& line, LaunchOptions const& options,
                      std::span<Block const> blocks) {
    Verdict verdict = run_and_check(gpu(), c, options, blocks);
    INFO(line << "\n" << verdict.text);
    CHECK((verdict.ok || verdict.refused));
    return std::move(verdict.outputs);
}

Outputs require_right(ProblemSpec const& spec, LaunchOptions const& options) {
    return require_right(build_case(spec), to_string(spec), options);
}

void require_all_right(std::vector<ProblemSpec> const& specs) {
    std::vector<xqajit_params> shapes;
    for (ProblemSpec const& spec : specs) shapes.push_back(spec.params);
    require_ok(gpu().prewarm(shapes));
    for (ProblemSpec const& spec : specs) require_right(spec);
}

DeviceProblem make_problem(ReferenceCase const& c, LaunchOptions const& options) {
    Result<DeviceProblem> problem = DeviceProblem::upload(gpu(), c, options);
    require_ok(problem.status());
    require_ok(problem->prepare(gpu()));
    return std::move(*problem);
}

Outputs run_problem(DeviceProblem& problem) {
    require_ok(problem.run(gpu()));
    return download(problem);
}

Outputs download(DeviceProblem const& problem) {
    Result<Outputs> outputs = problem.download();
    require_ok(outputs.status());
    return std::move(*outputs);
}

void require_ok(Status const& status) {
    INFO(status.to_string() << "\n" << status.detail());
    REQUIRE(status.ok());
}

double distance(xqajit_params const& params, Outputs const& a, Outputs const& b) {
    float const* const table = decode_table(params.out_dtype);
    std::uint32_t const bytes = bytes_of(params.out_dtype);
    double error2 = 0;
    double norm2 = 0;
    for (std::size_t n = 0; n < a.out.size() / bytes; ++n) {
        double const x = table[load_bits(a.out.data(), static_cast<std::int64_t>(n), bytes)];
        double const y = table[load_bits(b.out.data(), static_cast<std::int64_t>(n), bytes)];
        error2 += (x - y) * (x - y);
        norm2 += y * y;
    }
    return error2 == 0 ? 0 : std::sqrt(error2 / norm2);
}

}  // namespace xqajit::testing
