// The read roofline: how fast a kernel that does nothing but load gets through as many bytes, in the same process.
#pragma once

#include <string>

#include "driver/device_memory.h"
#include "driver/module.h"
#include "tools/measure/timing.h"

namespace xqajit::measure {

class ReadRoofline {
public:
    // By the NVRTC that the settings name; UNAVAILABLE where there is none. The context is current, here and below.
    static Result<ReadRoofline> compile(driver::GpuContext const& context);
    // Best over several grids for `copies` buffers of `bytes` each, a multiple of 16, read in turn.
    Result<Timing> measure(driver::GpuContext const& context, CUstream stream, std::uint64_t bytes, int copies) const;
    std::string const& nvrtc_version() const { return nvrtc_version_; }

private:
    ReadRoofline(driver::LoadedKernel kernel, std::string nvrtc_version)
        : kernel_(std::move(kernel)), nvrtc_version_(std::move(nvrtc_version)) {}
    driver::LoadedKernel kernel_;
    std::string nvrtc_version_;
};

}  // namespace xqajit::measure
