// Modules, functions and launches.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "functions.h"

namespace fake {
namespace {

void write_log(unsigned int count, CUjit_option* options, void** values, char const* text) {
    char* buffer = nullptr;
    std::size_t size = 0;
    for (unsigned int i = 0; i < count; ++i) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = reinterpret_cast<std::size_t>(values[i]);
    }
    if (buffer != nullptr && size > 0) std::snprintf(buffer, size, "%s", text);
}

bool has_function(CUfunction function) {
    bool found = false;
    s().modules.for_each([&](CUmod_st const& module) {
        for (auto const& known : module.functions) found = found || known.get() == function;
    });
    return found;
}

Device const& device_of(CUfunction function) { return s().devices[static_cast<std::size_t>(function->module->context->device)]; }

int dynamic_limit(CUfunction function) { return std::max(function->max_dynamic_smem, 48 * 1024 - s().static_smem); }

}  // namespace

CUresult fake_cuModuleLoadDataEx(CUmodule* module, void const* image, unsigned int count, CUjit_option* options, void** values) {
    ENTER(cuModuleLoadDataEx);
    if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    bool const ptx = std::strncmp(static_cast<char const*>(image), "//", 2) == 0 ||
                     std::strncmp(static_cast<char const*>(image), ".version", 8) == 0;
    if (ptx) s().last_ptx = static_cast<char const*>(image);
    CUresult const told = ptx ? s().fail_ptx : s().fail_cubin;
    if (told != CUDA_SUCCESS) {
        write_log(count, options, values, ptx ? "ptxas fatal: the fake driver refuses PTX" : "the fake driver refuses cubins");
        return told;
    }
    *module = s().modules.make();
    (*module)->context = current();
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleUnload(CUmodule module) {
    ENTER(cuModuleUnload);
    if (!s().modules.has(module)) return CUDA_ERROR_INVALID_HANDLE;
    if (module->context != current()) return CUDA_ERROR_INVALID_CONTEXT;
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    s().modules.erase(module);
    return CUDA_SUCCESS;
}

CUresult fake_cuModuleGetFunction(CUfunction* function, CUmodule module, char const* name) {
    ENTER(cuModuleGetFunction);
    if (!s().modules.has(module)) return CUDA_ERROR_INVALID_HANDLE;
    if (name == nullptr || *name == '\0') return CUDA_ERROR_NOT_FOUND;
    *function = module->functions.emplace_back(std::make_unique<CUfunc_st>()).get();
    (*function)->module = module;
    return CUDA_SUCCESS;
}

CUresult fake_cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    ENTER(cuFuncGetAttribute);
    if (!has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
            *value = s().static_smem;
            break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
            *value = dynamic_limit(function);
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult fake_cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER(cuFuncSetAttribute);
    if (!has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value + s().static_smem > device_of(function).smem_optin) return CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic_smem = value;
    return CUDA_SUCCESS;
}

CUresult fake_cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                          std::size_t dynamic_smem) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    if (!has_function(function) || block_size < 1) return CUDA_ERROR_INVALID_VALUE;
    std::size_t const smem = dynamic_smem + static_cast<std::size_t>(s().static_smem) + 1024;  // the driver's own share
    std::size_t const multiprocessor = static_cast<std::size_t>(device_of(function).smem_optin) + 1024;
    *blocks = static_cast<int>(std::min<std::size_t>(multiprocessor / smem, static_cast<std::size_t>(2048 / block_size)));
    return CUDA_SUCCESS;
}

CUresult fake_cuLaunchKernelEx(CUlaunchConfig const* config, CUfunction function, void** parameters, void** extra) {
    ENTER(cuLaunchKernelEx);
    if (!has_function(function)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext const context = context_of(config->hStream);
    if (context == nullptr || context != function->module->context || context != current()) return CUDA_ERROR_INVALID_CONTEXT;
    std::uint64_t const threads = std::uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
    if (config->gridDimX == 0 || config->gridDimY == 0 || config->gridDimZ == 0 || threads == 0 || threads > 1024 ||
        parameters == nullptr || extra != nullptr || config->sharedMemBytes > static_cast<unsigned int>(dynamic_limit(function)))
        return CUDA_ERROR_INVALID_VALUE;
    FakeCudaLaunch launch;
    for (unsigned int i = 0; i < config->numAttrs; ++i) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            launch.pdl = config->attrs[i].value.programmaticStreamSerializationAllowed != 0;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) launch.cluster_x = config->attrs[i].value.clusterDim.x;
    }
    if ((launch.pdl || launch.cluster_x != 1) && device_of(function).major < 9) return CUDA_ERROR_INVALID_VALUE;
    if (launch.cluster_x == 0 || config->gridDimX % launch.cluster_x != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    launch.grid[0] = config->gridDimX;
    launch.grid[1] = config->gridDimY;
    launch.grid[2] = config->gridDimZ;
    launch.block[0] = config->blockDimX;
    launch.block[1] = config->blockDimY;
    launch.block[2] = config->blockDimZ;
    launch.dynamic_smem = config->sharedMemBytes;
    launch.function = function;
    launch.stream = config->hStream;
    launch.context = context;
    auto const* const args = static_cast<unsigned char const*>(parameters[0]);
    launch.args.assign(args, args + s().args_size);
    return submit(config->hStream, [launch] {
        ++s().launches;
        s().last_launch = launch;
    });
}

}  // namespace fake
