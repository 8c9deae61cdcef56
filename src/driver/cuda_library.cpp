#include "driver/cuda_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "driver/cuda_functions.h"

namespace xqajit::driver {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

// Never closed: a driver that has been initialised, even in vain, has threads and handlers of its own.
Result<void*> open_handle() {
    static void* handle = nullptr;
    if (handle == nullptr) handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return handle;
    char const* const reason = dlerror();
    return unavailable(fmt::format("{} not found ({}): an NVIDIA driver is needed to load and launch kernels", kLibrary,
                                   reason != nullptr ? reason : "no reason given"));
}

// Asked by plain lookup, so that a driver without cuGetProcAddress can still say how old it is.
Result<int> installed_version(void* handle) {
    auto const get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(dlsym(handle, "cuDriverGetVersion"));
    int version = 0;
    if (get_version == nullptr || get_version(&version) != CUDA_SUCCESS)
        return unavailable(fmt::format("{} does not tell its version: it is a stub or no NVIDIA driver", kLibrary));
    if (version < kCudaAbi)
        return unavailable(fmt::format("the NVIDIA driver supports CUDA {}: at least {} is needed", driver_version_text(version),
                                       driver_version_text(kCudaAbi)));
    return version;
}

Status look_up(void* handle, CudaLibrary& cuda) {
    auto const get_address = reinterpret_cast<decltype(&::cuGetProcAddress)>(dlsym(handle, "cuGetProcAddress_v2"));
    if (get_address == nullptr) return unavailable(fmt::format("{} has no cuGetProcAddress_v2", kLibrary));
    auto const find = [&](char const* name, auto& function) {
        void* address = nullptr;
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
        CUresult const result = get_address(name, &address, kCudaAbi, CU_GET_PROC_ADDRESS_DEFAULT, &found);
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
        return result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS && address != nullptr;
    };
#define XQAJIT_FIND(name)        \
    if (!find(#name, cuda.name)) \
        return unavailable(fmt::format("{} (CUDA {}) has no {}", kLibrary, driver_version_text(cuda.version), #name));
    XQAJIT_CUDA_FUNCTIONS(XQAJIT_FIND)
#undef XQAJIT_FIND
    return {};
}

Result<CudaLibrary> open_and_initialise() {
    Result<void*> const handle = open_handle();
    if (!handle.ok()) return handle.status();
    Result<int> const version = installed_version(*handle);
    if (!version.ok()) return version.status();
    CudaLibrary cuda;
    cuda.version = *version;
    XQAJIT_RETURN_IF_ERROR(look_up(*handle, cuda));
    if (CUresult const result = cuda.cuInit(0);
        result != CUDA_SUCCESS)  // no device, no permission, a driver update without a reboot
        return unavailable(driver_error(cuda, "cuInit", result).message());
    return cuda;
}

}  // namespace

Result<CudaLibrary const*> open_cuda() {
    static std::atomic<CudaLibrary const*> opened{nullptr};
    if (CudaLibrary const* cuda = opened.load(std::memory_order_acquire)) return cuda;
    static std::mutex mutex;
    static CudaLibrary library;
    std::lock_guard const lock(mutex);
    if (CudaLibrary const* cuda = opened.load(std::memory_order_relaxed)) return cuda;
    Result<CudaLibrary> const attempt = open_and_initialise();
    if (!attempt.ok()) return attempt.status();
    library = *attempt;
    opened.store(&library, std::memory_order_release);
    return &library;
}

Status driver_error(CudaLibrary const& cuda, char const* call, CUresult result) {
    char const* name = nullptr;
    char const* text = nullptr;
    if (cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an error this driver has no name for";
    if (cuda.cuGetErrorString(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
    xqajit_status const code = result == CUDA_ERROR_OUT_OF_MEMORY ? XQAJIT_OUT_OF_MEMORY : XQAJIT_DRIVER_ERROR;
    return {code, fmt::format("{}: {} ({}): {}", call, name, static_cast<int>(result), text)};
}

std::string driver_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace xqajit::driver
