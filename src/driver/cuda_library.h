// libcuda, opened on first need. The only header besides its neighbours in driver/ that sees cuda.h.
#pragma once

#include <cuda.h>

#include "base/status.h"
#include "select/arch.h"

namespace xqajit::driver {

// Function pointers by cuGetProcAddress, one member each, named as the driver names them: driver/cuda_functions.h.
struct CudaLibrary;
// The process's libcuda, initialised. UNAVAILABLE says what is missing or too old. Thread-safe; takes no lock once it has succeeded; the
// failure is retried on the next call.
Result<CudaLibrary const*> open_cuda();

// DRIVER_ERROR "cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid". OUT_OF_MEMORY where that is the reason.
Status driver_error(CudaLibrary const& cuda, char const* call, CUresult result);

std::string driver_version_text(int version);  // 12040 is "12.4"

}  // namespace xqajit::driver
