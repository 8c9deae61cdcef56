// The GPUs of this machine, without a context on any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "select/arch.h"

namespace xqajit {

struct Device {
    int ordinal = 0;
    std::string name;
    std::uint64_t memory_bytes = 0;
    std::uint32_t major = 0, minor = 0;
    Result<ArchFacts> arch = unavailable("not asked");  // sm_count and smem_optin its own; UNSUPPORTED: older than the oldest arch
};

struct DriverReport {
    std::string version;  // "13.0"
    std::vector<Device> devices;
};

// UNAVAILABLE: no driver library, or none that serves.
Result<DriverReport> read_devices();

}  // namespace xqajit
