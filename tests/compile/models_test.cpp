// The kernels of real models: none may spill on sm_90a.
#include <fstream>
#include <sstream>

#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

void no_spills(std::int32_t kv_dtype) {
    auto const nvrtc = real_nvrtc();
    require_target(*nvrtc, "sm_90a");
    std::ifstream file(MODELS);
    std::ostringstream text;
    text << file.rdbuf();
    int compiled_kernels = 0;
    for (auto const& spec : kernels_of(text.str(), "sm_90a")) {
        if (spec.kv_dtype != kv_dtype) continue;
        auto const compiled = compile(*nvrtc, request_of(spec));
        INFO(to_string(spec) << "\n" << compiled.status().message() << "\n" << compiled.status().detail());
        REQUIRE(compiled.ok());
        CHECK(compiled->spill_bytes == 0);
        CHECK(compiled->registers > 0);
        ++compiled_kernels;
    }
    CHECK(compiled_kernels > 10);
}

}  // namespace

TEST_CASE("no model's kernel with bf16 KV spills on sm_90a", "[compile][models]") { no_spills(XQAJIT_DTYPE_BF16); }
TEST_CASE("no model's kernel with fp8 KV spills on sm_90a", "[compile][models]") { no_spills(XQAJIT_DTYPE_FP8_E4M3); }
TEST_CASE("no model's kernel with int8 KV spills on sm_90a", "[compile][models]") { no_spills(XQAJIT_DTYPE_INT8); }
