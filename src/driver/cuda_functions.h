// The driver functions this library calls: one list makes the table, its lookup and its type checks.
#pragma once

#include "driver/cuda_library.h"

// Each is asked for at kCudaAbi, so that a newer driver or header does not change a signature under us. cuda.h renames some of these by
// macro (cuMemAlloc is cuMemAlloc_v2); lookup needs the plain name, which an argument of # keeps.
// clang-format off
#define XQAJIT_CUDA_FUNCTIONS(X)                                                                                                     \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                                            \
    X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)             \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                                                                         \
    X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent) X(cuCtxPopCurrent) X(cuCtxGetDevice) X(cuCtxGetId) X(cuCtxSynchronize)  \
    X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamGetCtx)                                                    \
    X(cuStreamIsCapturing) X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuThreadExchangeStreamCaptureMode)                        \
    X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) X(cuFuncSetAttribute)                       \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled)                                     \
    X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync)             \
    X(cuMemcpyDtoDAsync) X(cuMemsetD32Async)                                                                                         \
    X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime)                                  \
    X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuGraphDestroy) X(cuGraphExecDestroy)
// clang-format on

namespace xqajit::driver {

inline constexpr int kCudaAbi = 12000;  // also the oldest driver that serves: cuCtxGetId came with 12.0

struct CudaLibrary {
#define XQAJIT_MEMBER(name) decltype(&::name) name = nullptr;
    XQAJIT_CUDA_FUNCTIONS(XQAJIT_MEMBER)
#undef XQAJIT_MEMBER
    int version = 0;  // the driver's, as 12040
};

}  // namespace xqajit::driver
