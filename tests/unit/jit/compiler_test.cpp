#include "jit/compiler.h"

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

TEST_CASE("a compile gives image, usage, log and version", "[jit]") {
    auto const nvrtc = open_fake();
    auto const compiled = run_job(*nvrtc, sample_job());
    REQUIRE(compiled.ok());
    CHECK(compiled->image.starts_with("fake cubin"));
    CHECK(!compiled->is_ptx);
    CHECK(compiled->registers == 40);
    CHECK(compiled->stack_bytes == 16);
    CHECK(compiled->static_smem == 128);
    CHECK(compiled->spill_bytes == 0);
    CHECK(contains(compiled->log, "ptxas info"));
    CHECK(compiled->nvrtc_version == "13.0");
    auto const again = run_job(*nvrtc, sample_job());
    REQUIRE(again.ok());
    CHECK(again->image == compiled->image);
}

TEST_CASE("a virtual target gives PTX", "[jit]") {
    auto const compiled = run_job(*open_fake(), sample_job("compute_80"));
    REQUIRE(compiled.ok());
    CHECK(compiled->is_ptx);
    CHECK(compiled->image.starts_with("// fake PTX"));
    CHECK(compiled->registers == 0);
}

TEST_CASE("the compiler is given the macros, the keyed options and no include path", "[jit][J15]") {
    auto const job = sample_job();
    auto const compiled = run_job(*open_fake(), job);
    REQUIRE(compiled.ok());
    std::string const& text = compiled->image;  // the fake lists its options
    for (auto const& option : job.options) CHECK(contains(text, option + "\n"));
    CHECK(contains(text, "-DXQAJIT_HEAD_DIM=128\n"));
    for (std::string const option : {"\n-I", "--include-path", "--pre-include", "--use_fast_math"}) CHECK(!contains(text, option));
}

TEST_CASE("the option --no-cache is passed where NVRTC knows it", "[jit]") {
    for (auto const& [version, expected] : {std::pair("12.8", false), std::pair("12.9", true), std::pair("13.0", true)}) {
        INFO(version);
        ScopedEnvironment const set("FAKE_NVRTC_VERSION", version);
        auto const compiled = run_job(*open_fake(), sample_job());
        REQUIRE(compiled.ok());
        CHECK(contains(compiled->image, "--no-cache") == expected);
    }
}

TEST_CASE("every source text reaches the compiler", "[jit]") {
    auto const nvrtc = open_fake();
    auto const image_of = [&](std::vector<Source> sources) {
        CompileJob job = sample_job();
        job.sources = std::move(sources);
        auto const compiled = run_job(*nvrtc, job);
        REQUIRE(compiled.ok());
        return compiled->image;
    };
    std::string const first = image_of({{"mmha/kernel.cu", "entry"}, {"a.cuh", "a"}});
    CHECK(image_of({{"mmha/kernel.cu", "entry"}, {"a.cuh", "b"}}) != first);
    CHECK(image_of({{"mmha/kernel.cu", "other"}, {"a.cuh", "a"}}) != first);
    CHECK(image_of({{"mmha/kernel.cu", "entry"}, {"b.cuh", "a"}}) != first);
    // A view into a longer text ends where the view ends.
    std::string const longer = "entry and more";
    CHECK(image_of({{"mmha/kernel.cu", std::string_view(longer).substr(0, 5)}, {"a.cuh", "a"}}) == first);
}

TEST_CASE("a target that this NVRTC does not know is refused with the version and what it knows", "[jit][J17]") {
    ScopedEnvironment const archs("FAKE_NVRTC_ARCHS", "75,80,86");
    ScopedEnvironment const version("FAKE_NVRTC_VERSION", "12.6");
    TemporaryFolder folder;
    std::string const count = folder.path() + "/count";
    ScopedEnvironment const counted("FAKE_NVRTC_COUNT", count.c_str());
    auto const nvrtc = open_fake();
    for (std::string const target : {"sm_90a", "sm_120f", "compute_90", "sm_", "nonsense", ""}) {
        INFO(target);
        auto const compiled = run_job(*nvrtc, sample_job(target));
        REQUIRE(!compiled.ok());
        CHECK(compiled.status().code() == XQAJIT_UNSUPPORTED);
        CHECK(contains(compiled.status().message(), "target " + target + " is unknown to NVRTC 12.6"));
        CHECK(contains(compiled.status().message(), "75, 80, 86"));
    }
    CHECK(read_text(count).empty());  // no compile was begun
    CHECK(run_job(*nvrtc, sample_job("sm_86")).ok());
}

TEST_CASE("a target whose suffix alone this NVRTC refuses is unsupported, not a failed compile", "[jit][J17]") {
    for (char const* log :
         {"nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
          "Command-line error: invalid or no value specified with --nv_arch flag\n\n1 catastrophic error detected\n"}) {
        ScopedEnvironment const fail("FAKE_NVRTC_FAIL", log);
        auto const compiled = run_job(*open_fake(), sample_job("sm_80a"));
        REQUIRE(!compiled.ok());
        CHECK(compiled.status().code() == XQAJIT_UNSUPPORTED);
        CHECK(contains(compiled.status().message(), "target sm_80a is unknown to NVRTC 13.0"));
    }
}

TEST_CASE("a failed compile keeps the first error line, the log and the macros", "[jit]") {
    ScopedEnvironment const fail("FAKE_NVRTC_FAIL",
                                 "mmha/kernel.cu(3): warning: odd\nmmha/kernel.cu(9): error: no such thing\nmore\n");
    auto const compiled = run_job(*open_fake(), sample_job());
    REQUIRE(!compiled.ok());
    Status const status = compiled.status();
    CHECK(status.code() == XQAJIT_COMPILE_FAILED);
    CHECK(status.message() == "compiling mmha sm_90a failed: mmha/kernel.cu(9): error: no such thing");
    CHECK(contains(status.detail(), "-DXQAJIT_HEAD_DIM=128"));
    CHECK(contains(status.detail(), "warning: odd"));
    CHECK(contains(status.detail(), "more"));
    CHECK(contains(status.detail(), "NVRTC 13.0"));
}

TEST_CASE("memory running out in the compiler is a status", "[jit]") {
    for (char const* how : {"error", "throw"}) {
        INFO(how);
        ScopedEnvironment const memory("FAKE_NVRTC_MEMORY", how);
        auto const compiled = run_job(*open_fake(), sample_job());
        REQUIRE(!compiled.ok());
        CHECK(compiled.status().code() == XQAJIT_OUT_OF_MEMORY);
        CHECK(contains(compiled.status().message(), "mmha sm_90a"));
    }
}

TEST_CASE("a family without a kernel is refused", "[jit]") {
    CompileJob job = sample_job();
    job.sources.clear();
    auto const compiled = run_job(*open_fake(), job);
    REQUIRE(!compiled.ok());
    CHECK(compiled.status().code() == XQAJIT_UNSUPPORTED);
}
