// What the real compiler says when a compile can't be.
#include <algorithm>

#include "catch.h"
#include "shapes.h"

using namespace xqajit;
using namespace xqajit::test;

TEST_CASE("a macro that is missing fails the compile by name", "[compile]") {
    auto const nvrtc = real_nvrtc();
    CompileRequest const whole = request_of(kernels_of(kCoverShapes, "sm_80").front());
    auto const closure = source_closure(whole.family);
    int dropped = 0;
    for (std::size_t i = 0; i < whole.macros.macros.size(); ++i) {
        std::string const name = whole.macros.macros[i].first;
        bool const read = std::any_of(closure.begin(), closure.end(),
                                      [&](Source const& source) { return source.text.find(name) != std::string_view::npos; });
        if (!read) continue;
        ++dropped;
        CompileRequest request = whole;
        request.macros.macros.erase(request.macros.macros.begin() + static_cast<std::ptrdiff_t>(i));
        auto const compiled = compile(*nvrtc, request);
        INFO(name << ": " << compiled.status().message());
        REQUIRE(!compiled.ok());
        CHECK(compiled.status().code() == XQAJIT_COMPILE_FAILED);
        CHECK(compiled.status().message().find(name) != std::string::npos);
        CHECK(compiled.status().detail().find("-DXQAJIT_") != std::string::npos);
    }
    CHECK(dropped >= 10);
}

TEST_CASE("a target of the future is refused with the compiler's version", "[compile][J17]") {
    auto const nvrtc = real_nvrtc();
    CompileRequest request = request_of(kernels_of(kCoverShapes, "sm_80").front());
    // The first by its number, the second by its suffix alone.
    for (std::string const target : {"sm_200a", "sm_80a"}) {
        request.target = target;
        auto const compiled = compile(*nvrtc, request);
        REQUIRE(!compiled.ok());
        INFO(compiled.status().message());
        CHECK(compiled.status().code() == XQAJIT_UNSUPPORTED);
        CHECK(compiled.status().message().find("target " + target + " is unknown to NVRTC " + nvrtc->version()) !=
              std::string::npos);
    }
}

TEST_CASE("a worker's image is the one that a compile in this process makes", "[compile]") {
    auto const nvrtc = real_nvrtc();
    CompileRequest const request = request_of(kernels_of(kCoverShapes, "sm_80").front());
    auto const here = compile(*nvrtc, request);
    auto const there = compile_in_worker(WORKER, nvrtc_identity(), request, std::chrono::minutes(2));
    INFO(here.status().message() << there.status().message());
    REQUIRE(here.ok());
    REQUIRE(there.ok());
    CHECK((here->image == there->image));
    CHECK(here->registers == there->registers);
}
