// libcuda, opened on first need. The only header besides its neighbours in driver/ that sees cuda.h.
#pragma once

#include <cuda.h>

#include "base/status.h"
#include "select/arch.h"

namespace xqajit::driver {

// Function pointers by cuGetProcAddress, one member each, named as the driver names them.
struct CudaLibrary;
// The process's libcuda, initialised. UNAVAILABLE says what is missing or too old. Thread-safe; the failure is retried on the next call.
Result<CudaLibrary const*> open_cuda();

// DRIVER_ERROR "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid".
Status driver_error(CudaLibrary const& cuda, char const* call, CUresult result);

} // namespace xqajit::driver
