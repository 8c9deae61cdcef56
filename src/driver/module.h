// Images become loaded kernels, one a context.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "driver/context.h"

namespace xqajit::driver {

struct Image {
    std::string_view bytes;  // a cubin's length is the caller's promise: the driver takes a pointer alone
    bool is_ptx = false;     // bytes need no final zero
};

// A kernel loaded into one context. Unloaded with the object; quietly where the context is gone already.
// function() may be used by any number of threads; the object is destroyed when no launch is being made.
class LoadedKernel {
public:
    // Tries the images in order (cubin first, PTX as the fallback); if all fail the error has every reason. Loads under a relaxed
    // capture mode, so that another thread's capture survives. Opts in to dynamic_smem (bytes) on this context's device; more than it
    // has is UNSUPPORTED, with need and limit.
    static Result<LoadedKernel> load(ContextInfo const& context, std::span<Image const> images, char const* entry_name,
                                     std::uint32_t dynamic_smem);
    LoadedKernel(LoadedKernel&& other) noexcept;
    LoadedKernel& operator=(LoadedKernel&&) = delete;
    ~LoadedKernel();
    CUfunction function() const { return function_; }

private:
    LoadedKernel() = default;
    CUcontext context_ = nullptr;
    std::uint64_t context_id_ = 0;  // tells a dead context from a new one at its address
    CUmodule module_ = nullptr;     // null: moved from
    CUfunction function_ = nullptr;
};

struct LaunchConfig {
    std::uint32_t grid_x = 1;
    std::uint32_t block_x = 1;
    std::uint32_t dynamic_smem = 0;  // bytes
    bool pdl = false;                // programmatic dependent launch: may start before the stream's previous kernel has ended
    std::uint32_t cluster_x = 1;     // consecutive blocks that run at once as a thread block cluster; grid_x is a multiple
};
// cuLaunchKernelEx with the kernel's by-value parameters, one pointer each, which are copied before the return. The stream's context is
// current.
Status launch(LoadedKernel const& kernel, LaunchConfig const& config, std::span<void*> parameters, CUstream stream);

}  // namespace xqajit::driver
