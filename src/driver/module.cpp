#include "driver/module.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "driver/cuda_functions.h"

namespace xqajit::driver {
namespace {

constexpr std::uint32_t kSmemWithoutOptIn = 48 * 1024;

// Loading and unloading allocate, which the driver forbids while any thread captures in global mode. They touch no stream, so this
// thread may say that it knows better.
class RelaxedCaptureMode {
public:
    explicit RelaxedCaptureMode(CudaLibrary const& cuda) : cuda_(cuda) { cuda_.cuThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedCaptureMode() { cuda_.cuThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedCaptureMode(RelaxedCaptureMode const&) = delete;
    RelaxedCaptureMode& operator=(RelaxedCaptureMode const&) = delete;

private:
    CudaLibrary const& cuda_;
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // after construction: the caller's
};

Result<CUmodule> load_image(CudaLibrary const& cuda, Image const& image) {
    if (image.bytes.empty()) return Status(XQAJIT_DRIVER_ERROR, "the image is empty");
    std::string const text(image.is_ptx ? image.bytes : std::string_view());  // PTX is a C string to the driver
    void const* const data = image.is_ptx ? text.c_str() : image.bytes.data();
    std::array<char, 2048> log{};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
    CUmodule module = nullptr;
    CUresult const result = cuda.cuModuleLoadDataEx(&module, data, 2, options, values);
    if (result == CUDA_SUCCESS) return module;
    Status const error = driver_error(cuda, "cuModuleLoadDataEx", result);
    return Status(error.code(), error.message(), log.data());
}

// The block's whole shared memory against the device's limit, then the opt-in that more than 48 KiB needs.
Status allow_smem(CudaLibrary const& cuda, ContextInfo const& context, CUfunction function, std::uint32_t dynamic_smem) {
    int fixed = 0;
    if (CUresult const result = cuda.cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
        result != CUDA_SUCCESS)
        return driver_error(cuda, "cuFuncGetAttribute (static shared memory)", result);
    std::uint64_t const need = static_cast<std::uint64_t>(fixed) + dynamic_smem;
    if (need > context.arch.smem_optin)
        return unsupported(
            fmt::format("the kernel needs {} bytes of shared memory a block ({} static, {} dynamic): device {} ({}) has {}", need,
                        fixed, dynamic_smem, context.device, context.device_name, context.arch.smem_optin));
    if (need <= kSmemWithoutOptIn) return {};
    CUresult const result =
        cuda.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(dynamic_smem));
    if (result != CUDA_SUCCESS) {
        std::string const call = fmt::format("cuFuncSetAttribute ({} bytes of dynamic shared memory)", dynamic_smem);
        return driver_error(cuda, call.c_str(), result);
    }
    return {};
}

}  // namespace

Result<LoadedKernel> LoadedKernel::load(ContextInfo const& context, std::span<Image const> images, char const* entry_name,
                                        std::uint32_t dynamic_smem) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    Result<ScopedContext> const scope = ScopedContext::enter(context.context);
    if (!scope.ok()) return scope.status();
    RelaxedCaptureMode const relaxed(cuda);

    std::string reasons;
    std::string logs;
    xqajit_status code = XQAJIT_DRIVER_ERROR;
    auto const note = [&](Image const& image, Status const& status) {
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", image.is_ptx ? "PTX" : "cubin", status.message());
        logs += status.detail();
        code = status.code();
    };
    for (Image const& image : images) {
        Result<CUmodule> const module = load_image(cuda, image);
        if (!module.ok()) {
            note(image, module.status());
            continue;
        }
        LoadedKernel kernel;  // from here on its destructor unloads
        kernel.context_ = context.context;
        kernel.context_id_ = context.id;
        kernel.module_ = *module;
        CUresult const result = cuda.cuModuleGetFunction(&kernel.function_, kernel.module_, entry_name);
        if (result != CUDA_SUCCESS) {
            note(image, driver_error(cuda, fmt::format("cuModuleGetFunction ({})", entry_name).c_str(), result));
            continue;
        }
        XQAJIT_RETURN_IF_ERROR(allow_smem(cuda, context, kernel.function_, dynamic_smem));
        return kernel;
    }
    return Status(code,
                  fmt::format("no image of {} loads on device {} ({}, driver for CUDA {}): {}", entry_name, context.device,
                              context.device_name, driver_version_text(cuda.version), reasons.empty() ? "none was given" : reasons),
                  logs);
}

LoadedKernel::LoadedKernel(LoadedKernel&& other) noexcept
    : context_(other.context_),
      context_id_(other.context_id_),
      module_(std::exchange(other.module_, nullptr)),
      function_(other.function_) {}

LoadedKernel::~LoadedKernel() {
    if (module_ == nullptr) return;
    CudaLibrary const& cuda = **open_cuda();
    unsigned long long id = 0;
    // The module died with its context. A new context may have the same address, but not the same id.
    if (cuda.cuCtxGetId(context_, &id) != CUDA_SUCCESS || id != context_id_) return;
    Result<ScopedContext> const scope = ScopedContext::enter(context_);
    if (!scope.ok()) return;
    RelaxedCaptureMode const relaxed(cuda);
    cuda.cuModuleUnload(module_);
}

Status launch(LoadedKernel const& kernel, LaunchConfig const& config, std::span<void*> parameters, CUstream stream) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;

    CUlaunchAttribute attributes[2] = {};
    unsigned nb_attributes = 0;
    if (config.pdl) {
        CUlaunchAttribute& attribute = attributes[nb_attributes++];
        attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attribute.value.programmaticStreamSerializationAllowed = 1;
    }
    if (config.cluster_x > 1) {
        CUlaunchAttribute& attribute = attributes[nb_attributes++];
        attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute.value.clusterDim.x = config.cluster_x;
        attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    }
    CUlaunchConfig launch_config{};
    launch_config.gridDimX = config.grid_x;
    launch_config.gridDimY = 1;
    launch_config.gridDimZ = 1;
    launch_config.blockDimX = config.block_x;
    launch_config.blockDimY = 1;
    launch_config.blockDimZ = 1;
    launch_config.sharedMemBytes = config.dynamic_smem;
    launch_config.hStream = stream;
    launch_config.attrs = attributes;
    launch_config.numAttrs = nb_attributes;
    CUresult const result = cuda.cuLaunchKernelEx(&launch_config, kernel.function(), parameters.data(), nullptr);
    if (result == CUDA_SUCCESS) return {};
    std::string const clusters = config.cluster_x > 1 ? fmt::format(", clusters of {}", config.cluster_x) : "";
    std::string const call = fmt::format("cuLaunchKernelEx (grid {}, block {}{}, {} bytes of dynamic shared memory)", config.grid_x,
                                         config.block_x, clusters, config.dynamic_smem);
    return driver_error(cuda, call.c_str(), result);
}

}  // namespace xqajit::driver
