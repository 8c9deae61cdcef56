// Library and devices.
#include <algorithm>
#include <cstdio>

#include "functions.h"

namespace fake {
namespace {

bool has_device(CUdevice device) { return device >= 0 && device < static_cast<int>(s().devices.size()); }

struct ErrorText {
    CUresult result;
    char const* name;
    char const* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

ErrorText const* find_error(CUresult result) {
    auto const* const found =
        std::find_if(std::begin(kErrors), std::end(kErrors), [=](ErrorText const& e) { return e.result == result; });
    return found != std::end(kErrors) ? found : nullptr;
}

}  // namespace

CUresult fake_cuInit(unsigned int) {
    ENTER(cuInit);
    return s().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult fake_cuDriverGetVersion(int* version) {
    ENTER(cuDriverGetVersion);
    *version = s().version;
    return CUDA_SUCCESS;
}

CUresult fake_cuGetErrorName(CUresult result, char const** name) {
    ENTER(cuGetErrorName);
    ErrorText const* const error = find_error(result);
    *name = error != nullptr ? error->name : nullptr;
    return error != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuGetErrorString(CUresult result, char const** text) {
    ENTER(cuGetErrorString);
    ErrorText const* const error = find_error(result);
    *text = error != nullptr ? error->text : nullptr;
    return error != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuDeviceGet(CUdevice* device, int ordinal) {
    ENTER(cuDeviceGet);
    if (!has_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetCount(int* count) {
    ENTER(cuDeviceGetCount);
    *count = static_cast<int>(s().devices.size());
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetName(char* name, int size, CUdevice device) {
    ENTER(cuDeviceGetName);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Device const& d = s().devices[static_cast<std::size_t>(device)];
    std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d (%d.%d)", device, d.major, d.minor);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
    ENTER(cuDeviceGetUuid);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i == 15 ? device : 0xa0 + i);
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Device const& d = s().devices[static_cast<std::size_t>(device)];
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            *value = d.major;
            break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            *value = d.minor;
            break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            *value = d.sm_count;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            *value = d.smem_optin;
            break;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
            *value = kL2Bytes;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = fake::kDeviceMemory;
    return CUDA_SUCCESS;
}

}  // namespace fake
