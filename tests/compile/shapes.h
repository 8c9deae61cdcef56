// Shapes, kernels and the compiler of the compile suite.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jit/compiler.h"

namespace xqajit::test {

// A shape list in which every macro takes each value, or for a count several, that some family accepts.
extern char const* const kCoverShapes;
// The same of what sm_90a's kernels alone compute.
extern char const* const kHopperShapes;
// Likewise of the fused append, which gmma alone has, on sm_90a.
extern char const* const kAppendShapes;

NvrtcIdentity nvrtc_identity();                    // skips the test if there is none
std::shared_ptr<NvrtcLibrary const> real_nvrtc();  // likewise
bool knows_target(NvrtcLibrary const& nvrtc, std::string const& target);
// Skips the test if this NVRTC is too old for the target.
void require_target(NvrtcLibrary const& nvrtc, std::string const& target);

// The distinct kernels of a shape list on a target: of every family that has one and can compute the shape, as `edit` leaves it.
std::vector<KernelSpec> kernels_of(
    std::string_view shapes, std::string const& target, void (*edit)(XQAParams&) = [](XQAParams&) {});

CompileRequest request_of(KernelSpec const& spec);

}  // namespace xqajit::test
