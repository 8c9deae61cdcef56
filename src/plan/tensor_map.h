// What the tensor maps of a launch's K and V describe: how the copy engine finds a tile of tokens in the caller's memory. Pure.
#pragma once

#include <array>

#include "kernel_src/common/contract.h"
#include "select/kernel_spec.h"

namespace xqajit {

// The innermost dimension comes first: elements of a row, KV heads, tokens of a page, pages. Contiguous KV has sequences for pages.
struct TensorMapDescription {
    std::int32_t dtype = 0;                  // xqajit_dtype of an element
    std::array<std::uint64_t, 4> dims{};     // 1..2^32
    std::array<std::uint64_t, 3> strides{};  // bytes, of all dimensions but the first: multiples of 16 below 2^40
    std::array<std::uint32_t, 4> box{};  // what one copy takes, 1..256 along each dimension; past the end of a dimension it is 0
    std::uint32_t swizzle_bytes = 0;     // 64 or 128: of the box's rows in shared memory
    bool promotes_to_lines = false;      // L2 reads 128 bytes where a copy asks for 64
    bool operator==(TensorMapDescription const&) const = default;
    std::string to_string() const;
};

// Whether the family's kernels take the tensor maps of K and of V behind their arguments.
bool takes_tensor_maps(Family family);

// Of a spec whose family does, and a launch's arguments. UNSUPPORTED names a stride that no tensor map can have.
Result<TensorMapDescription> k_tensor_map(KernelSpec const& spec, device::KernelArgs const& args);
Result<TensorMapDescription> v_tensor_map(KernelSpec const& spec, device::KernelArgs const& args);

}  // namespace xqajit
