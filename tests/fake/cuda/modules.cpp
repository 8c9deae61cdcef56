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
        (parameters == nullptr && !s().args_sizes.empty()) || extra != nullptr ||
        config->sharedMemBytes > static_cast<unsigned int>(dynamic_limit(function)))
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
    for (std::size_t i = 0; i < s().args_sizes.size(); ++i) {
        auto const* const bytes = static_cast<unsigned char const*>(parameters[i]);
        launch.args.emplace_back(bytes, bytes + s().args_sizes[i]);
    }
    return submit(config->hStream, [launch] {
        ++s().launches;
        s().last_launch = launch;
    });
}

CUresult fake_cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                     cuuint64_t const* dims, cuuint64_t const* strides, cuuint32_t const* box,
                                     cuuint32_t const* element_strides, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion,
                                     CUtensorMapFloatOOBfill oob_fill) {
    ENTER(cuTensorMapEncodeTiled);
    auto const is_aligned = [](void const* pointer, std::uintptr_t bytes) {
        return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
    };
    std::uint32_t const element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;  // of the types that are used here
    std::uint32_t const swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 128;
    if (!is_aligned(map, 64) || !is_aligned(address, 16) || rank == 0 || rank > 4) return CUDA_ERROR_INVALID_VALUE;
    if (box[0] * element_bytes % 16 != 0 || box[0] * element_bytes > swizzle_bytes) return CUDA_ERROR_INVALID_VALUE;
    FakeTensorMap encoded;
    for (cuuint32_t i = 0; i < rank; ++i) {
        bool const is_legal = dims[i] >= 1 && dims[i] <= std::uint64_t{1} << 32 && box[i] >= 1 && box[i] <= 256 &&
                              element_strides[i] >= 1 && element_strides[i] <= 8;
        if (!is_legal) return CUDA_ERROR_INVALID_VALUE;
        encoded.dims[i] = dims[i];
        encoded.box[i] = box[i];
        encoded.element_strides[i] = element_strides[i];
    }
    for (cuuint32_t i = 0; i + 1 < rank; ++i) {
        if (strides[i] % 16 != 0 || strides[i] >= std::uint64_t{1} << 40) return CUDA_ERROR_INVALID_VALUE;
        encoded.strides[i] = strides[i];
    }
    encoded.address = reinterpret_cast<std::uint64_t>(address);
    encoded.rank = rank;
    encoded.type = type;
    encoded.interleave = interleave;
    encoded.swizzle = swizzle;
    encoded.l2_promotion = l2_promotion;
    encoded.oob_fill = oob_fill;
    *map = {};
    std::memcpy(map, &encoded, sizeof encoded);
    return CUDA_SUCCESS;
}

}  // namespace fake
