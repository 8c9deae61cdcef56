// Runs a folder of conformance vectors through the float64 reference, or through the library on the GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "gpu/arguments.h"
#include "gpu/run_and_check.h"
#include "reference/codec.h"
#include "vectors/vector_case.h"

namespace {

using namespace xqajit;
using namespace xqajit::testing;

constexpr char kUsage[] =
    "usage: xqajit_vectors DIR [--gpu] [--kernel FAMILY] [--kv-dtype fp16|bf16|int8|fp8_e4m3] [--split N] [--division "
    "static|balanced|invariant]\n"
    "  default: the float64 reference, every type a vector can take\n"
    "  --gpu: the library, on device 0; the other options choose what it runs\n"
    "exit status: 0 all passed, 1 some failed or none passed, 2 usage, 3 no GPU";

// A vector's numbers have 9 digits and its scales are float64; the reference reads float32 scales.
constexpr double kReferenceBound = 1e-5;

struct Counts {
    int passed = 0;
    int failed = 0;
    int skipped = 0;
};

std::vector<VectorTypes> types_for(std::string const& kv_dtype, bool with_fp8_output) {
    std::vector<VectorTypes> list;
    for (std::int32_t const q : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP16})
        for (std::int32_t const kv : {q, std::int32_t{XQAJIT_DTYPE_INT8}, std::int32_t{XQAJIT_DTYPE_FP8_E4M3}}) {
            if (!kv_dtype.empty() && kv_dtype != name_of(kv)) continue;
            list.push_back({q, kv, q});
            if (with_fp8_output) list.push_back({q, kv, XQAJIT_DTYPE_FP8_E4M3});
        }
    return list;
}

// The reference's distance from the vector, in the norm of a (request, kv head).
bool check_reference(Vector const& vector, VectorTypes const& types, std::string& text) {
    ReferenceCase const c = make_case(vector, types);
    std::vector<BlockResult> const got = compute_reference(c, all_blocks(c));
    double worst = 0;
    double worst_lse = 0;
    for (std::size_t n = 0; n < got.size(); ++n) {
        double error2 = 0;
        double norm2 = 0;
        for (std::size_t d = 0; d < got[n].out.size(); ++d) {
            error2 += std::pow(got[n].out[d] - vector.expected[n].out[d], 2);
            norm2 += std::pow(vector.expected[n].out[d], 2);
        }
        double const error = error2 == 0 ? 0 : std::sqrt(error2 / norm2);  // infinite, or NaN, where nothing is visible
        worst = std::isnan(error) ? INFINITY : std::max(worst, error);
        for (std::size_t r = 0; r < got[n].lse.size(); ++r) {
            double const want = vector.expected[n].lse[r];
            if (got[n].lse[r] == want) continue;
            double const difference = std::fabs(got[n].lse[r] - want) / std::max(1.0, std::fabs(want));
            worst_lse = std::isfinite(difference) ? std::max(worst_lse, difference) : INFINITY;
        }
    }
    text = fmt::format("rel_l2 {:.1e} lse {:.1e} ({} blocks)", worst, worst_lse, got.size());
    return worst <= kReferenceBound && worst_lse <= kReferenceBound;
}

struct GpuChoice {
    std::int32_t division = XQAJIT_DIVISION_DEFAULT;
};

ReferenceCase gpu_case(Vector const& vector, VectorTypes const& types, GpuChoice const& choice) {
    ReferenceCase c = make_case(vector, types);
    c.params.division = choice.division;
    return c;
}

// passed, failed or skipped.
char const* check_gpu(Gpu const& gpu, Vector const& vector, VectorTypes const& types, GpuChoice const& choice, std::string& text) {
    ReferenceCase const c = gpu_case(vector, types, choice);
    Verdict const verdict = run_and_check(gpu, c);
    text = verdict.text;
    if (verdict.refused) return "skipped";
    if (!verdict.ok) return "failed";
    // The reference agreed; the vector has the last word.
    Comparison const comparison =
        compare_outputs(c, verdict.outputs.out, verdict.outputs.lse, vector.expected, bounds_for(types.q));
    text = comparison.ok ? comparison.summary() : comparison.text;
    return comparison.ok ? "passed" : "failed";
}

int run(Arguments& arguments) {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (auto const& entry : std::filesystem::directory_iterator(arguments.positional().front(), error))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    if (error || files.empty()) {
        std::fprintf(stderr, "%s: no vectors (*.json) there\n", arguments.positional().front().c_str());
        return 2;
    }
    std::sort(files.begin(), files.end());

    bool const on_gpu = arguments.has("--gpu");
    std::string const kv_dtype = arguments.text("--kv-dtype");
    GpuChoice choice;
    std::string const division = arguments.text("--division");
    if (division == "static") choice.division = XQAJIT_DIVISION_STATIC;
    if (division == "balanced") choice.division = XQAJIT_DIVISION_BALANCED;
    if (division == "invariant") choice.division = XQAJIT_DIVISION_INVARIANT;
    if (arguments.has("--kernel")) setenv("XQAJIT_FORCE_KERNEL", arguments.text("--kernel").c_str(), 1);
    if (arguments.has("--split")) setenv("XQAJIT_NB_SUB_SEQ", arguments.text("--split").c_str(), 1);

    std::vector<Vector> vectors;
    for (std::filesystem::path const& file : files) {
        Result<Vector> vector = load_vector(file);
        if (!vector.ok()) {
            std::fprintf(stderr, "%s\n", vector.status().message().c_str());
            return 2;
        }
        vectors.push_back(std::move(*vector));
    }
    std::vector<VectorTypes> const all_types = types_for(kv_dtype, on_gpu);
    std::unique_ptr<Gpu> gpu;
    if (on_gpu) {
        Result<std::unique_ptr<Gpu>> opened = Gpu::open();
        if (!opened.ok()) {
            std::fprintf(stderr, "%s\n", opened.status().to_string().c_str());
            return opened.status().code() == XQAJIT_UNAVAILABLE ? 3 : 2;
        }
        gpu = std::move(*opened);
        std::vector<xqajit_params> shapes;
        for (Vector const& vector : vectors)
            for (VectorTypes const& types : all_types)
                if (can_take(vector, types)) shapes.push_back(gpu_case(vector, types, choice).params);
        if (Status const status = gpu->prewarm(shapes); !status.ok())
            std::fprintf(stderr, "prewarm: %s\n", status.to_string().c_str());
    }

    Counts counts;
    for (Vector const& vector : vectors)
        for (VectorTypes const& types : all_types) {
            if (!can_take(vector, types)) continue;
            std::string text;
            std::string const outcome = on_gpu                                 ? check_gpu(*gpu, vector, types, choice, text)
                                        : check_reference(vector, types, text) ? "passed"
                                                                               : "failed";
            ++(outcome == "passed" ? counts.passed : outcome == "failed" ? counts.failed : counts.skipped);
            fmt::print("{} {} {}: {}\n", outcome, vector.name, to_string(types), text);
        }
    fmt::print("{} passed, {} failed, {} skipped\n", counts.passed, counts.failed, counts.skipped);
    return counts.failed == 0 && counts.passed > 0 ? 0 : 1;  // refusing everything is no success
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments(argc, argv, {"--kernel", "--kv-dtype", "--split", "--division"}, {"--gpu"}, kUsage);
    constexpr std::string_view kKvDtypes[] = {"", "fp16", "bf16", "int8", "fp8_e4m3"};
    constexpr std::string_view kDivisions[] = {"", "static", "balanced", "invariant"};
    auto const accepts = [&](char const* name, auto const& values) {
        if (std::find(std::begin(values), std::end(values), arguments.text(name)) == std::end(values))
            arguments.fail(fmt::format("{} is '{}'", name, arguments.text(name)));
    };
    accepts("--kv-dtype", kKvDtypes);
    accepts("--division", kDivisions);
    arguments.number("--split", 0);
    if (arguments.ok() && arguments.positional().size() != 1) arguments.fail("one folder of vectors is expected");
    return arguments.ok() ? run(arguments) : 2;
}
