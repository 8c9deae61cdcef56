// Every value of every macro, on every target.
#include <map>
#include <set>

#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

void compile_all(std::string const& target, std::size_t every = 1, char const* shapes = kCoverShapes) {
    auto const nvrtc = real_nvrtc();
    require_target(*nvrtc, target);
    auto const kernels = kernels_of(shapes, target);
    REQUIRE(!kernels.empty());
    for (std::size_t i = 0; i < kernels.size(); i += every) {
        auto const compiled = compile(*nvrtc, request_of(kernels[i]));
        INFO(to_string(kernels[i]) << "\n" << compiled.status().message() << "\n" << compiled.status().detail());
        REQUIRE(compiled.ok());
        CHECK(!compiled->image.empty());
        CHECK(compiled->is_ptx == target.starts_with("compute_"));
        CHECK(compiled->image.find(kEntryName) != std::string::npos);
        CHECK((compiled->is_ptx || compiled->registers > 0));
    }
}

}  // namespace

TEST_CASE("the cover shapes take every value of every macro", "[compile]") {
    std::map<std::string, std::set<std::string>> taken;
    for (char const* const shapes : {kCoverShapes, kHopperShapes, kAppendShapes})
        for (auto const& spec : kernels_of(shapes, "sm_90a"))
            for (auto const& [name, value] : macros_for(spec).macros) taken[name].insert(value);
    using Values = std::set<std::string>;
    std::map<std::string, Values> const whole = {
        {"XQAJIT_Q_DTYPE", {"1", "2"}},
        {"XQAJIT_KV_DTYPE", {"1", "2", "3", "4"}},
        {"XQAJIT_OUT_DTYPE", {"1", "2", "3"}},
        {"XQAJIT_SPEC_DEC", {"0", "1", "2"}},
        {"XQAJIT_IS_MLA", {"0", "1"}},
        {"XQAJIT_HAS_WINDOW", {"0", "1"}},
        {"XQAJIT_HAS_SOFTCAP", {"0", "1"}},
        {"XQAJIT_HAS_SINKS", {"0", "1"}},
        {"XQAJIT_HAS_LSE", {"0", "1"}},
        {"XQAJIT_HEAD_DIM_V", {"16", "64", "80", "112", "128", "192", "240", "256", "512"}},
        {"XQAJIT_PAGE_SIZE", {"0", "8", "16", "32", "64", "128", "1024"}},
        {"XQAJIT_BEAM_WIDTH", {"1", "4", "8"}},
        {"XQAJIT_SKIP_SOFTMAX", {"0", "1"}},
        {"XQAJIT_NUMERIC", {"1", "2"}},
        {"XQAJIT_INPUT_KV", {"0", "1"}},
        {"XQAJIT_ROPE_STYLE", {"0", "1", "2"}},
        {"XQAJIT_ROTARY_DIM", {"0", "16", "32", "48", "64", "128", "192", "256"}},
    };
    for (auto const& [name, values] : whole) {
        INFO(name);
        CHECK(taken[name] == values);
    }
    CHECK(taken["XQAJIT_GROUP_SIZE"].size() >= 6);
    CHECK(taken["XQAJIT_M_TILE"] == Values{"1", "2", "8", "16", "32", "64"});
    CHECK(taken["XQAJIT_HEAD_DIM"].contains("576"));
}

// The compiler gets no include path: what compiles here compiles where no toolkit is installed.
TEST_CASE("every cover shape compiles for sm_80", "[compile][J15]") { compile_all("sm_80"); }
TEST_CASE("every cover shape compiles for sm_90a", "[compile][J15]") { compile_all("sm_90a"); }
TEST_CASE("every shape of sm_90a alone compiles for it", "[compile][J15]") { compile_all("sm_90a", 1, kHopperShapes); }
TEST_CASE("every fused append compiles for sm_90a", "[compile][J15]") { compile_all("sm_90a", 1, kAppendShapes); }
// Between these and the three above only the conversions and the dependency wait differ.
TEST_CASE("a fifth of the cover shapes compiles for sm_86", "[compile][J15]") { compile_all("sm_86", 5); }
TEST_CASE("a fifth of the cover shapes compiles for sm_89", "[compile][J15]") { compile_all("sm_89", 5); }
TEST_CASE("a fifth of the cover shapes compiles for sm_100a", "[compile][J15]") { compile_all("sm_100a", 5); }
TEST_CASE("a fifth of the cover shapes compiles for sm_120f", "[compile][J15]") { compile_all("sm_120f", 5); }
TEST_CASE("a fifth of the cover shapes compiles to PTX", "[compile][J15]") { compile_all("compute_80", 5); }
