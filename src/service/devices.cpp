#include "service/devices.h"

#include "driver/cuda_functions.h"

namespace xqajit {
namespace {

Result<Device> read_device(driver::CudaLibrary const& cuda, int ordinal) {
    Device device;
    device.ordinal = ordinal;
    CUdevice handle = 0;
    if (CUresult const result = cuda.cuDeviceGet(&handle, ordinal); result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuDeviceGet", result);
    char name[256] = "";
    if (CUresult const result = cuda.cuDeviceGetName(name, sizeof name, handle); result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuDeviceGetName", result);
    device.name = name;
    std::size_t bytes = 0;
    if (CUresult const result = cuda.cuDeviceTotalMem(&bytes, handle); result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuDeviceTotalMem", result);
    device.memory_bytes = bytes;

    constexpr CUdevice_attribute kAttributes[] = {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN};
    std::uint32_t values[std::size(kAttributes)] = {};
    for (std::size_t i = 0; i < std::size(kAttributes); ++i) {
        int value = 0;
        if (CUresult const result = cuda.cuDeviceGetAttribute(&value, kAttributes[i], handle); result != CUDA_SUCCESS)
            return driver::driver_error(cuda, "cuDeviceGetAttribute", result);
        values[i] = static_cast<std::uint32_t>(value);
    }
    device.major = values[0];
    device.minor = values[1];
    device.arch = arch_from_capability(device.major, device.minor);
    if (device.arch.ok()) {
        device.arch->sm_count = values[2];
        device.arch->smem_optin = values[3];
    }
    return device;
}

}  // namespace

Result<DriverReport> read_devices() {
    Result<driver::CudaLibrary const*> const library = driver::open_cuda();
    if (!library.ok()) return library.status();
    driver::CudaLibrary const& cuda = **library;
    DriverReport report;
    report.version = driver::driver_version_text(cuda.version);
    int count = 0;
    if (CUresult const result = cuda.cuDeviceGetCount(&count); result != CUDA_SUCCESS)
        return driver::driver_error(cuda, "cuDeviceGetCount", result);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        Result<Device> device = read_device(cuda, ordinal);
        if (!device.ok()) return device.status();
        report.devices.push_back(std::move(device).value());
    }
    return report;
}

}  // namespace xqajit
