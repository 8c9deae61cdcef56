// A libcuda.so.1 without a GPU, and its controls. It has every function that src/driver looks up, keeps the driver's rules about
// contexts, captures and shared memory, and runs no kernel: device memory is host memory, copies and fills are done at once or, in a
// capture, at each graph launch; a launch is recorded.
//
// Use: LD_LIBRARY_PATH=<build>/fake/cuda (in a test: the ENVIRONMENT property, see tests/unit/driver/CMakeLists.txt).
//
// Environment, read at the first call of any driver function:
//   FAKE_CUDA_DEVICES=12.0,8.6          compute capabilities by ordinal; "" is no device. Default 9.0. "9.0:78" has 78 multiprocessors
//   FAKE_CUDA_DRIVER_VERSION=12040      default 13000
//   FAKE_CUDA_FAIL=cuInit=999,cuMemAlloc=2   these functions fail with that CUresult at every call
//   FAKE_CUDA_FAIL_CUBIN=209            loads of an image that is not PTX fail with that CUresult
//   FAKE_CUDA_FAIL_PTX=222              loads of PTX (text that begins with "//" or ".version") fail with that CUresult
// Otherwise any image loads and has any function.
//
// Capture: a call that allocates, frees, loads, unloads, copies synchronously or waits, made under this thread's capture mode while a
// capture forbids it, returns CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and invalidates that capture, as the driver does.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

struct FakeCudaLaunch {
    std::uint32_t grid[3] = {};
    std::uint32_t block[3] = {};
    std::uint32_t dynamic_smem = 0;
    bool pdl = false;
    std::uint32_t cluster_x = 1;
    CUfunction function = nullptr;
    CUstream stream = nullptr;
    CUcontext context = nullptr;
    std::vector<std::vector<unsigned char>> args;  // of each parameter the bytes that set_args_sizes() asked for
};

// What the fake's cuTensorMapEncodeTiled leaves in a CUtensorMap. It knows tensors of up to four dimensions.
struct FakeTensorMap {
    std::uint64_t address = 0;
    std::uint64_t dims[4] = {};
    std::uint64_t strides[3] = {};
    std::uint32_t box[4] = {};
    std::uint32_t element_strides[4] = {};
    std::uint32_t rank = 0;
    std::int32_t type = 0, interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;  // the driver's enums
};
static_assert(sizeof(FakeTensorMap) <= sizeof(CUtensorMap));
inline FakeTensorMap fake_tensor_map(void const* encoded) {
    FakeTensorMap map;
    std::memcpy(static_cast<void*>(&map), encoded, sizeof map);
    return map;
}

// All are thread-safe.
struct FakeCuda {
    void (*set_devices)(char const* list);                   // before any context is made; as FAKE_CUDA_DEVICES
    void (*set_version)(int version);                        // as FAKE_CUDA_DRIVER_VERSION
    void (*fail)(char const* function, CUresult result);     // from now on; CUDA_SUCCESS ends it
    void (*fail_images)(CUresult cubin, CUresult ptx);       // CUDA_SUCCESS: such images load
    void (*set_static_smem)(int bytes);                      // of every function
    void (*set_args_sizes)(std::vector<std::size_t> sizes);  // bytes that a launch copies of its first parameters; none at first
    int (*calls)(char const* function);                      // since the start or reset_calls()
    void (*reset_calls)();                                   //
    int (*total_calls)();                                    // of all functions
    int (*live_modules)();                                   // loaded and neither unloaded nor gone with their context
    std::string (*last_ptx)();                               // the text of the last PTX load, failed ones included
    std::uint64_t (*launches)();                             // kernels that have run, graph replays included
    FakeCudaLaunch (*last_launch)();                         //
    CUcontext (*create_context)(int device);     // not made current. Takes a destroyed context's address where there is one
    void (*destroy_context)(CUcontext context);  // with its streams, modules and memory
    std::uint64_t (*allocated_bytes)();          // device memory not freed
};

// Null where libcuda.so.1 is the real driver or missing.
inline FakeCuda const* fake_cuda() {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    auto const controls = reinterpret_cast<FakeCuda const* (*)()>(dlsym(handle, "fake_cuda_controls"));
    return controls != nullptr ? controls() : nullptr;
}
