// What the GPU tests share.
#pragma once

#include "catch.h"
#include "gpu/problem.h"
#include "gpu/run_and_check.h"

namespace xqajit::testing {

// The process's GPU. Where there is none the test is a skip.
Gpu& gpu();
// The same, with gmma forced whatever XQAJIT_FORCE_KERNEL says: for what gmma alone has.
Gpu& gmma();

// The shape that a test starts from; a zero kv or out type is the query's.
struct Shape {
    std::uint32_t q_heads = 32;
    std::uint32_t kv_heads = 8;
    std::uint32_t dim = 128;
    std::uint32_t page = 64;
    std::int32_t q = XQAJIT_DTYPE_BF16;
    std::int32_t kv = XQAJIT_DTYPE_DEFAULT;
    std::int32_t out = XQAJIT_DTYPE_DEFAULT;
    std::int32_t spec_dec = XQAJIT_SPEC_DEC_NONE;
    std::uint32_t q_len = 1;
    std::uint32_t window = 0;
    std::uint32_t split = 0;  // sub-sequences under static division; 0: the default division
    bool sinks = false;
    std::vector<std::int32_t> lens = {1000, 1, 64, 4097};
};
// With lse on, HND pages and, for 8-bit KV, scales that differ for K and V. Where there is no GPU the test ends here, before it has built
// anything large.
ProblemSpec make_spec(Shape const& shape);
ProblemSpec make_mla_spec(std::uint32_t q_heads, std::int32_t kv, std::vector<std::int32_t> lens);

// Whether the library serves the shape, or would if XQAJIT_FORCE_KERNEL did not name a family that does not. A shape that nothing keeps the
// library from serving counts as served: what then refuses it fails the test.
bool is_served(xqajit_params const& params);
std::vector<ProblemSpec> only_served(std::vector<ProblemSpec> specs);

// Runs a launch and checks all of it; a failure prints `line`. What only a forced family refuses is passed over: its outputs are empty.
Outputs require_right(ReferenceCase const& c, std::string const& line, LaunchOptions const& options = {},
                      std::span<Block const> blocks = {});
Outputs require_right(ProblemSpec const& spec, LaunchOptions const& options = {});
// Compiles them together, then checks each.
void require_all_right(std::vector<ProblemSpec> const& specs);

// A problem on the device, prepared. Failures end the test.
DeviceProblem make_problem(ReferenceCase const& c, LaunchOptions const& options = {});
Outputs run_problem(DeviceProblem& problem);
Outputs download(DeviceProblem const& problem);
void require_ok(Status const& status);
// Relative L2 distance of two outputs.
double distance(xqajit_params const& params, Outputs const& a, Outputs const& b);

}  // namespace xqajit::testing
