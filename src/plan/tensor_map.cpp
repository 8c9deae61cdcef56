#include "plan/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/blocks.h"

namespace xqajit {

namespace {

constexpr std::uint64_t kStrideStep = 16;  // bytes, like the next one: what a tensor map can encode
constexpr std::uint64_t kStrideLimit = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostPages = 0x7fffffff;  // page numbers are int32, and how many the pool has is not told

struct Stride {
    char const* name;
    std::int64_t bytes;
    std::uint64_t extent;  // of its dimension
};

// Where a dimension has one element its stride is never used, and may be anything in the caller's arguments.
Result<std::uint64_t> encodable(Stride const& stride, char operand, std::uint64_t row_bytes, char const* way_out) {
    if (stride.extent == 1) return row_bytes;
    auto const bytes = static_cast<std::uint64_t>(stride.bytes);
    if (stride.bytes > 0 && bytes < kStrideLimit && bytes % kStrideStep == 0) return bytes;
    return unsupported(
        fmt::format("{}_stride_{} is {} bytes: accepted by gmma, whose tensor maps hold it, are multiples of {} in {}..{}{}",
                    operand, stride.name, stride.bytes, kStrideStep, kStrideStep, kStrideLimit - kStrideStep, way_out));
}

Result<TensorMapDescription> describe(KernelSpec const& spec, device::KernelArgs const& args, char operand, std::uint32_t head_dim,
                                      device::KvTensor const& tensor) {
    std::uint32_t const kv_bytes = dtype_bytes(spec.kv_dtype);
    device::GmmaShape const shape = device::gmma_shape(gmma_kind(spec));
    bool const paged = spec.page_size != 0;
    // Contiguous KV without a token is not read, but has a map.
    std::uint64_t const tokens = paged ? spec.page_size : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(args.capacity));
    TensorMapDescription map;
    map.dtype = spec.kv_dtype;
    map.dims = {head_dim, args.num_kv_heads, tokens, paged ? kMostPages : args.batch};
    map.box = {shape.segment_bytes / kv_bytes, 1, paged ? std::min(spec.page_size, shape.tile_tokens) : shape.tile_tokens, 1};
    map.swizzle_bytes = shape.segment_bytes;
    // Rows of half a line: the other half is the next head's, which is read at the same time.
    map.promotes_to_lines = shape.segment_bytes == 64;
    Stride const strides[] = {{"head", tensor.stride_head, map.dims[1]},
                              {"token", tensor.stride_token, map.dims[2]},
                              {"page", tensor.stride_page, map.dims[3]}};
    char const* const way_out = is_gmmas_alone(spec) ? "" : "; hmma takes any";
    for (std::size_t i = 0; i < map.strides.size(); ++i) {
        Result<std::uint64_t> const bytes = encodable(strides[i], operand, std::uint64_t{head_dim} * kv_bytes, way_out);
        if (!bytes.ok()) return bytes.status();
        map.strides[i] = *bytes;
    }
    return map;
}

}  // namespace

bool takes_tensor_maps(Family family) { return family == Family::kGmma; }

Result<TensorMapDescription> k_tensor_map(KernelSpec const& spec, device::KernelArgs const& args) {
    return describe(spec, args, 'k', spec.head_dim, args.k);
}

Result<TensorMapDescription> v_tensor_map(KernelSpec const& spec, device::KernelArgs const& args) {
    return describe(spec, args, 'v', spec.head_dim_v, args.v);
}

std::string TensorMapDescription::to_string() const {
    return fmt::format("{} [{}, {}, {}, {}], strides {}, {}, {} bytes, box [{}, {}, {}, {}], swizzle {} bytes{}", dtype_name(dtype),
                       dims[0], dims[1], dims[2], dims[3], strides[0], strides[1], strides[2], box[0], box[1], box[2], box[3],
                       swizzle_bytes, promotes_to_lines ? ", whole lines" : "");
}

}  // namespace xqajit
