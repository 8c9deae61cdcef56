#include "shapes.h"

#include <algorithm>

#include "catch.h"
#include "params/shape_list.h"
#include "select/select.h"

namespace xqajit::test {

// clang-format off
char const* const kCoverShapes = R"({"version": 1, "shapes": [
{"name": "plain",          "q_dtype": "bf16", "num_q_heads": 32,  "num_kv_heads": 2, "head_dim": 128, "page_size": 32},
{"name": "window",         "q_dtype": "fp16", "kv_dtype": "fp8_e4m3", "num_q_heads": 4, "num_kv_heads": 4, "head_dim": 64, "page_size": 64, "sliding_window": 100, "lse": true},
{"name": "softcap",        "q_dtype": "bf16", "kv_dtype": "int8", "num_q_heads": 6, "num_kv_heads": 2, "head_dim": 80, "page_size": 16, "softcap": 30.0},
{"name": "largest group",  "q_dtype": "fp16", "kv_dtype": "int8", "out_dtype": "fp8_e4m3", "num_q_heads": 128, "num_kv_heads": 1, "head_dim": 256, "page_size": 8, "sinks": true},
{"name": "smallest head",  "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 4, "num_kv_heads": 2, "head_dim": 16, "page_size": 128, "sliding_window": 9, "softcap": 5.0, "sinks": true},
{"name": "beam",           "q_dtype": "fp16", "num_q_heads": 71,  "num_kv_heads": 1, "head_dim": 192, "page_size": 0, "beam_width": 4},
{"name": "widest beam",    "q_dtype": "bf16", "kv_dtype": "int8", "num_q_heads": 4, "num_kv_heads": 1, "head_dim": 112, "page_size": 16, "beam_width": 8, "sliding_window": 50},
{"name": "linear draft",   "q_dtype": "bf16", "num_q_heads": 8,   "num_kv_heads": 1, "head_dim": 128, "page_size": 32, "spec_dec": "linear", "q_len": 4, "sliding_window": 64},
{"name": "tree draft",     "q_dtype": "fp16", "kv_dtype": "fp8_e4m3", "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 128, "page_size": 32, "spec_dec": "tree", "q_len": 64, "lse": true},
{"name": "short linear draft", "q_dtype": "fp16", "kv_dtype": "int8", "out_dtype": "fp8_e4m3", "num_q_heads": 8, "num_kv_heads": 4, "head_dim": 256, "page_size": 0, "spec_dec": "linear", "q_len": 8, "sinks": true},
{"name": "short tree draft", "q_dtype": "bf16", "num_q_heads": 4,  "num_kv_heads": 2, "head_dim": 192, "page_size": 8, "spec_dec": "tree", "q_len": 4, "lse": true},
{"name": "wide group",     "q_dtype": "bf16", "kv_dtype": "int8", "num_q_heads": 24, "num_kv_heads": 1, "head_dim": 64, "page_size": 16, "softcap": 20.0, "sinks": true, "lse": true},
{"name": "wide group, fp8 output", "q_dtype": "fp16", "out_dtype": "fp8_e4m3", "num_q_heads": 48, "num_kv_heads": 1, "head_dim": 64, "page_size": 0, "sliding_window": 300},
{"name": "wide linear draft", "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 128, "page_size": 64, "spec_dec": "linear", "q_len": 8, "sliding_window": 100, "softcap": 30.0},
{"name": "wide draft of a large head", "q_dtype": "fp16", "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 256, "page_size": 128, "spec_dec": "linear", "q_len": 64, "sliding_window": 500, "sinks": true, "lse": true},
{"name": "wide tree of a large head", "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 256, "page_size": 32, "spec_dec": "tree", "q_len": 16, "softcap": 50.0},
{"name": "wide tree of part lines", "q_dtype": "bf16", "kv_dtype": "int8", "out_dtype": "fp8_e4m3", "num_q_heads": 5, "num_kv_heads": 1, "head_dim": 112, "page_size": 8, "spec_dec": "tree", "q_len": 12, "sinks": true},
{"name": "wide tree of one head", "q_dtype": "fp16", "num_q_heads": 1, "num_kv_heads": 1, "head_dim": 128, "page_size": 16, "spec_dec": "tree", "q_len": 64, "lse": true},
{"name": "mla",            "q_dtype": "bf16", "num_q_heads": 128, "num_kv_heads": 1, "head_dim": 576, "head_dim_v": 512, "mla": true, "qk_scale": 0.1, "page_size": 64},
{"name": "mla fp8, draft", "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 16, "num_kv_heads": 1, "head_dim": 576, "head_dim_v": 512, "mla": true, "qk_scale": 0.1, "page_size": 32, "spec_dec": "linear", "q_len": 2, "lse": true},
{"name": "largest page",   "q_dtype": "fp16", "num_q_heads": 1,   "num_kv_heads": 1, "head_dim": 240, "page_size": 1024, "out_dtype": "fp8_e4m3", "sinks": true, "lse": true}
]})";

char const* const kHopperShapes = R"({"version": 1, "shapes": [
{"name": "skip",            "q_dtype": "bf16", "num_q_heads": 64,  "num_kv_heads": 8, "head_dim": 128, "page_size": 32, "skip_softmax": true, "skip_softmax_threshold": 10.0, "lse": true},
{"name": "skip fp8",        "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "num_q_heads": 16, "num_kv_heads": 1, "head_dim": 64, "page_size": 64, "skip_softmax": true, "skip_softmax_threshold": 10.0, "sinks": true},
{"name": "skip int8",       "q_dtype": "fp16", "kv_dtype": "int8", "num_q_heads": 8, "num_kv_heads": 4, "head_dim": 256, "page_size": 8, "skip_softmax": true, "skip_softmax_threshold": 10.0, "softcap": 30.0, "sliding_window": 4000},
{"name": "skip, linear",    "q_dtype": "fp16", "num_q_heads": 4, "num_kv_heads": 1, "head_dim": 128, "page_size": 128, "skip_softmax": true, "skip_softmax_threshold": 10.0, "spec_dec": "linear", "q_len": 4, "sliding_window": 4000, "lse": true},
{"name": "skip, tree",      "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "out_dtype": "fp8_e4m3", "num_q_heads": 4, "num_kv_heads": 2, "head_dim": 80, "page_size": 0, "skip_softmax": true, "skip_softmax_threshold": 10.0, "spec_dec": "tree", "q_len": 8},
{"name": "fp8 math",        "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "numeric": "fp8", "num_q_heads": 8,  "num_kv_heads": 1, "head_dim": 128, "page_size": 32, "lse": true},
{"name": "fp8 math, 16",    "q_dtype": "fp16", "kv_dtype": "fp8_e4m3", "numeric": "fp8", "num_q_heads": 16, "num_kv_heads": 1, "head_dim": 256, "page_size": 64, "sinks": true, "softcap": 30.0},
{"name": "fp8 math, 32",    "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "numeric": "fp8", "num_q_heads": 24, "num_kv_heads": 1, "head_dim": 64,  "page_size": 16, "sliding_window": 4000},
{"name": "fp8 math, tree",  "q_dtype": "bf16", "kv_dtype": "fp8_e4m3", "numeric": "fp8", "out_dtype": "fp8_e4m3", "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 80, "page_size": 0, "spec_dec": "tree", "q_len": 8}
]})";

char const* const kAppendShapes = R"({"version": 1, "defaults": {"input_kv": true, "q_dtype": "bf16", "num_kv_heads": 2}, "shapes": [
{"name": "no rotation",        "num_q_heads": 8,  "head_dim": 128, "page_size": 32, "lse": true},
{"name": "no rotation, int8",  "num_q_heads": 2,  "head_dim": 64,  "page_size": 8,   "kv_dtype": "int8"},
{"name": "neox",               "num_q_heads": 16, "head_dim": 128, "page_size": 64,  "rope_style": "neox"},
{"name": "neox, fp16",         "num_q_heads": 32, "head_dim": 128, "page_size": 16,  "rope_style": "neox", "q_dtype": "fp16", "sinks": true},
{"name": "neox, part, fp8",    "num_q_heads": 8,  "head_dim": 256, "page_size": 0,   "rope_style": "neox", "rotary_dim": 64, "kv_dtype": "fp8_e4m3", "out_dtype": "fp8_e4m3"},
{"name": "neox, int8",         "num_q_heads": 18, "head_dim": 80,  "page_size": 128, "rope_style": "neox", "rotary_dim": 48, "kv_dtype": "int8", "softcap": 30.0},
{"name": "neox, a wide tile",  "num_q_heads": 64, "head_dim": 128, "page_size": 32,  "rope_style": "neox"},
{"name": "gptj, two row blocks, fp8", "num_q_heads": 256, "head_dim": 64, "page_size": 16, "rope_style": "gptj", "kv_dtype": "fp8_e4m3"},
{"name": "gptj",               "num_q_heads": 6,  "head_dim": 192, "page_size": 32,  "rope_style": "gptj", "sliding_window": 100},
{"name": "gptj, fp16",         "num_q_heads": 4,  "head_dim": 16,  "page_size": 8,   "rope_style": "gptj", "q_dtype": "fp16"},
{"name": "gptj, part, fp8",    "num_q_heads": 16, "head_dim": 64,  "page_size": 64,  "rope_style": "gptj", "rotary_dim": 32, "q_dtype": "fp16", "kv_dtype": "fp8_e4m3"},
{"name": "gptj, int8",         "num_q_heads": 8,  "head_dim": 256, "page_size": 16,  "rope_style": "gptj", "kv_dtype": "int8"}
]})";
// clang-format on

NvrtcIdentity nvrtc_identity() {
    auto const settings = Settings::from_environment();
    REQUIRE(settings.ok());
    auto const found = find_nvrtc(*settings);
    if (!found.ok()) skip_test(found.status().message().c_str());
    return *found;
}

std::shared_ptr<NvrtcLibrary const> real_nvrtc() {
    auto const library = NvrtcLibrary::open(nvrtc_identity());
    INFO(library.status().message());
    REQUIRE(library.ok());
    return *library;
}

bool knows_target(NvrtcLibrary const& nvrtc, std::string const& target) {
    auto const facts = arch_from_name(target);
    REQUIRE(facts.ok());
    auto const& known = nvrtc.supported_archs();
    bool const listed = std::find(known.begin(), known.end(), static_cast<int>(facts->sm)) != known.end();
    return listed && (!target.ends_with('f') || nvrtc.knows_no_cache());  // both came with 12.9
}

void require_target(NvrtcLibrary const& nvrtc, std::string const& target) {
    if (!knows_target(nvrtc, target)) skip_test(("NVRTC " + nvrtc.version() + " does not know " + target).c_str());
}

std::vector<KernelSpec> kernels_of(std::string_view shapes, std::string const& target, void (*edit)(XQAParams&)) {
    auto entries = parse_shape_list(shapes);
    INFO(entries.status().message());
    REQUIRE(entries.ok());
    auto const arch = arch_from_name(target);
    REQUIRE(arch.ok());
    RuleKind const waived[] = {RuleKind::kChoice};
    std::vector<KernelSpec> kernels;
    for (auto& entry : *entries) {
        edit(entry.params);
        bool served = false;
        for (Family const family : kFamilies) {
            if (!admit(family, entry.params, *arch, waived).ok) continue;
            served = true;
            KernelSpec const spec = make_spec(family, entry.params, *arch);
            if (std::find(kernels.begin(), kernels.end(), spec) == kernels.end()) kernels.push_back(spec);
        }
        INFO(entry.name << " has no kernel");
        CHECK(served);
    }
    return kernels;
}

CompileRequest request_of(KernelSpec const& spec) { return {spec.family, spec.target, macros_for(spec)}; }

}  // namespace xqajit::test
