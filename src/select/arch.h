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
    bool is_ptx() const { return target.starts_with("compute_"); }
};

// "sm_90a", "sm_80", "90a", "9.0a", "9.0", "compute_80". A bare 90 becomes 90a, 100 and 103 and 110 their "a", 120 and 121 "120f".
Result<ArchFacts> arch_from_name(std::string_view name);
Result<ArchFacts> arch_from_capability(std::uint32_t major, std::uint32_t minor);
// Whether an image for `target` runs on a device of capability sm.
bool runs_on(ArchFacts const& target, std::uint32_t device_sm);

} // namespace xqajit
