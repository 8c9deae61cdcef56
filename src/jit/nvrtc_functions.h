// The NVRTC functions in use, found with dlsym. The only include of nvrtc.h: types and constants, nothing is linked.
#pragma once

#include <nvrtc.h>

#include "jit/nvrtc_library.h"

namespace xqajit {

struct NvrtcLibrary::Functions {
    decltype(&nvrtcVersion) version = nullptr;
    decltype(&nvrtcGetNumSupportedArchs) get_num_supported_archs = nullptr;
    decltype(&nvrtcGetSupportedArchs) get_supported_archs = nullptr;
    decltype(&nvrtcGetErrorString) get_error_string = nullptr;
    decltype(&nvrtcCreateProgram) create_program = nullptr;
    decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
    decltype(&nvrtcCompileProgram) compile_program = nullptr;
    decltype(&nvrtcGetProgramLogSize) get_program_log_size = nullptr;
    decltype(&nvrtcGetProgramLog) get_program_log = nullptr;
    decltype(&nvrtcGetCUBINSize) get_cubin_size = nullptr;
    decltype(&nvrtcGetCUBIN) get_cubin = nullptr;
    decltype(&nvrtcGetPTXSize) get_ptx_size = nullptr;
    decltype(&nvrtcGetPTX) get_ptx = nullptr;
};

}  // namespace xqajit
