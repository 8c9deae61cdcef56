// Facts about GPU architectures: the only place that knows one from another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace xqajit {

struct ArchFacts {
    std::uint32_t sm = 0;             // 80, 86, 90, 120 ...
    std::string target;               // exact compile target: "sm_90a", "sm_80", "sm_120f", "compute_80"
    std::uint32_t sm_count = 0;       // of the device; by name alone, of the arch's largest common part
    std::uint32_t smem_optin = 0;     // bytes of shared memory one block may use
    bool native_fp8_convert = false;  // sm_89 on
    bool has_tma = false;             // sm_90 on
    bool has_wgmma = false;           // sm_90a alone
    bool has_pdl = false;             // sm_90 on
    bool has_clusters = false;        // sm_90 on
    bool is_ptx() const { return target.starts_with("compute_"); }
};

// "sm_90a", "sm_80", "90a", "9.0a", "9.0", "compute_80". Without a suffix 90, 100, 103 and 110 become their "a", 120 and 121
// "sm_120f" (one image serves both); "compute_90" stays plain, because PTX is asked for to run on later GPUs.
// INVALID_ARGUMENT lists the accepted names.
Result<ArchFacts> arch_from_name(std::string_view name);
// Whether the text is written as such a name, of a known architecture or not: "sm_70", "7.0", "sm_999a".
bool is_arch_name(std::string_view text);
// UNSUPPORTED lists the known capabilities.
Result<ArchFacts> arch_from_capability(std::uint32_t major, std::uint32_t minor);
// Whether an image for `target` runs on a device of capability sm: sm_NN on the same major with a minor as high (Tegra parts, 87
// and 110, exchange images with no other), sm_NNa on NN alone, sm_NNf on NN and the later members of its family, compute_NN on NN
// and all later; compute_NNa and compute_NNf as sm_NNa and sm_NNf.
bool runs_on(ArchFacts const& target, std::uint32_t device_sm);

}  // namespace xqajit
