#include "driver/tensor_map.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "driver/cuda_functions.h"

namespace xqajit::driver {
namespace {

static_assert(sizeof(CUtensorMap) == sizeof(device::TensorMap));

// Codes of 8 bits are copied as they are.
CUtensorMapDataType data_type(std::int32_t dtype) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
            return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        case XQAJIT_DTYPE_BF16:
            return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
        default:
            return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    }
}

}  // namespace

Status encode_tensor_map(TensorMapDescription const& description, void const* base, device::TensorMap& map) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    static constexpr cuuint32_t kEveryElement[] = {1, 1, 1, 1};
    CUtensorMap encoded;  // which newer headers align to more than the driver asks for
    // Arrays of the driver's own integer types, which are of the same size as ours but not the same.
    auto const dims = std::bit_cast<std::array<cuuint64_t, 4>>(description.dims);
    auto const strides = std::bit_cast<std::array<cuuint64_t, 3>>(description.strides);
    CUresult const result = (*library)->cuTensorMapEncodeTiled(
        &encoded, data_type(description.dtype), 4, const_cast<void*>(base), dims.data(), strides.data(), description.box.data(),
        kEveryElement, CU_TENSOR_MAP_INTERLEAVE_NONE,
        description.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
        description.promotes_to_lines ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        std::string const call = fmt::format("cuTensorMapEncodeTiled ({} at {})", description.to_string(), base);
        return driver_error(**library, call.c_str(), result);
    }
    std::memcpy(&map, &encoded, sizeof map);
    return {};
}

}  // namespace xqajit::driver
