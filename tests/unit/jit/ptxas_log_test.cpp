#include "jit/ptxas_log.h"

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

// As NVRTC 13.0 and 12.4 print it, with a function that was not inlined after the entry.
constexpr char const* kLog13 = R"(k.cu(2): warning #177-D: variable "unused" was declared but never referenced

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'xqajit_kernel' for 'sm_90a'
ptxas info    : Function properties for xqajit_kernel
ptxas         .     400 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 400 bytes cumulative stack size, 128 bytes smem
ptxas info    : Compile time = 22.643 ms
ptxas info    : Function properties for g
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
)";
constexpr char const* kLog12 = R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas info    : Function properties for other
ptxas         .     4 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 9 registers, 4 bytes smem
ptxas info    : Compiling entry function 'xqajit_kernel' for 'sm_80'
ptxas info    : Function properties for xqajit_kernel
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, 360 bytes cmem[0]
)";

}  // namespace

TEST_CASE("resource usage is read from the log of the entry function alone", "[jit]") {
    PtxasUsage const a = usage_in(kLog13, "xqajit_kernel");
    CHECK(a.registers == 32);
    CHECK(a.spill_bytes == 32);
    CHECK(a.stack_bytes == 400);
    CHECK(a.static_smem == 128);
    PtxasUsage const b = usage_in(kLog12, "xqajit_kernel");
    CHECK(b.registers == 168);
    CHECK(b.spill_bytes == 0);
    CHECK(b.stack_bytes == 0);
    CHECK(b.static_smem == 0);
    CHECK(usage_in("", "xqajit_kernel").registers == 0);
}

TEST_CASE("the first error line is found behind warnings", "[jit]") {
    struct Case {
        char const *log, *line;
    };
    for (Case const& each :
         {Case{"a.cu(1): warning #1: x\na.cu(7): error: expected a ;\nb: error: y\n", "a.cu(7): error: expected a ;"},
          Case{"nvrtc: error: invalid value for --gpu-architecture (-arch)",
               "nvrtc: error: invalid value for --gpu-architecture (-arch)"},
          Case{"w\nptxas error   : Entry function uses too much shared data",
               "ptxas error   : Entry function uses too much shared data"},
          Case{"\nsomething went wrong\n", "something went wrong"}, Case{"", ""}}) {
        CHECK(first_error_line(each.log) == each.line);
    }
}
