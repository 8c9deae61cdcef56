// Images become loaded kernels, one a context.
#pragma once

#include <span>

#include "driver/context.h"

namespace xqajit::driver {

struct Image {
    std::string_view bytes;
    bool is_ptx = false;
};

// A kernel loaded into one context. Unloaded with the object; quietly where the context is gone already.
class LoadedKernel {
public:
    // Tries the images in order (cubin first, PTX as the fallback); if all fail the error has every reason. Loads under a relaxed
    // capture mode, so that another thread's capture survives. Opts in to dynamic_smem on this context's device.
    static Result<LoadedKernel> load(ContextInfo const& context, std::span<Image const> images, char const* entry_name, std::uint32_t dynamic_smem);
    LoadedKernel(LoadedKernel&& other) noexcept;
    LoadedKernel& operator=(LoadedKernel&&) = delete;
    ~LoadedKernel();
    CUfunction function() const { return function_; }

private:
    LoadedKernel() = default;
    CUcontext context_ = nullptr;
    CUmodule module_ = nullptr;
    CUfunction function_ = nullptr;
};

struct LaunchConfig {
    std::uint32_t grid_x = 1;
    std::uint32_t block_x = 1;
    std::uint32_t dynamic_smem = 0;
    bool pdl = false;
};
// cuLaunchKernelEx with one by-value parameter struct. The stream's context is current.
Status launch(LoadedKernel const& kernel, LaunchConfig const& config, void* kernel_args, CUstream stream);

} // namespace xqajit::driver
