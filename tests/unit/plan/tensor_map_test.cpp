// What gmma's tensor maps describe, for each layout of K and V in the caller's memory.
#include "plan/tensor_map.h"

#include "gmma/launch.h"
#include "launches.h"

using namespace xqajit;
using test::contains;
using test::gmma_spec;

namespace {

constexpr std::int64_t kTib = std::int64_t{1} << 40;

// Strides in bytes.
device::KvTensor tensor(std::int64_t page, std::int64_t token, std::int64_t head) { return {nullptr, page, token, head, nullptr}; }

device::KernelArgs arguments(std::uint32_t num_kv_heads, device::KvTensor const& k, device::KvTensor const& v) {
    device::KernelArgs args{};
    args.batch = 5;
    args.capacity = 1000;
    args.num_kv_heads = num_kv_heads;
    args.k = k;
    args.v = v;
    return args;
}

TensorMapDescription described(Result<TensorMapDescription> const& map) {
    INFO(map.status().message());
    REQUIRE(map.ok());
    return *map;
}

}  // namespace

TEST_CASE("gmma's rows are cut into segments of a swizzle, and its items hold a tile", "[plan]") {
    struct Row {
        std::uint32_t head_dim, kv_bytes, segment_bytes, segments, item_bytes, blocks_an_sm;
    };
    for (Row const& row : {Row{16, 1, 64, 1, 4096, 4},
                           {16, 2, 64, 1, 4096, 4},
                           {64, 1, 64, 1, 4096, 4},
                           {80, 1, 128, 1, 8192, 4},
                           {64, 2, 128, 1, 8192, 4},
                           {80, 2, 128, 2, 16384, 2},
                           {128, 1, 128, 1, 8192, 4},
                           {128, 2, 128, 2, 16384, 2},
                           {144, 1, 128, 2, 16384, 2},
                           {192, 2, 128, 3, 24576, 2},
                           {256, 1, 128, 2, 16384, 2},
                           {256, 2, 128, 4, 32768, 2}}) {
        device::GmmaShape const shape = device::gmma_shape({row.head_dim, row.kv_bytes, 8});
        INFO(row.head_dim << " elements of " << row.kv_bytes << " bytes");
        CHECK(shape.segment_bytes == row.segment_bytes);
        CHECK(shape.segments == row.segments);
        CHECK(shape.tile_tokens == 64);
        CHECK(shape.item_bytes == row.item_bytes);
        CHECK(shape.blocks_an_sm == row.blocks_an_sm);
    }
    for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
        for (std::uint32_t const kv_bytes : {1u, 2u}) {
            device::GmmaShape const shape = device::gmma_shape({head_dim, kv_bytes, 8});
            CHECK(shape.segment_bytes * shape.segments >= head_dim * kv_bytes);
            CHECK(shape.segment_bytes * (shape.segments - 1) < head_dim * kv_bytes);
            CHECK(shape.item_bytes == shape.tile_tokens * shape.segment_bytes * shape.segments);
        }
    CHECK(device::gmma_threads(1) == 160);
    CHECK(device::gmma_threads(device::kMostGmmaGroups) == 288);
}

TEST_CASE("a tensor map describes the caller's layout, whatever it is", "[plan]") {
    std::int32_t const bf16 = XQAJIT_DTYPE_BF16, fp8 = XQAJIT_DTYPE_FP8_E4M3, int8 = XQAJIT_DTYPE_INT8;
    constexpr std::uint64_t kPages = 0x7fffffff;
    struct Row {
        char const* what;
        std::uint32_t head_dim;
        std::int32_t kv_dtype;
        std::uint32_t page_size, num_kv_heads;
        device::KvTensor strides;
        TensorMapDescription map;
    };
    Row const rows[] = {
        {"NHD", 128, bf16, 32, 8, tensor(65536, 2048, 256), {bf16, {128, 8, 32, kPages}, {256, 2048, 65536}, {64, 1, 32, 1}, 128}},
        {"HND", 128, bf16, 32, 8, tensor(65536, 256, 8192), {bf16, {128, 8, 32, kPages}, {8192, 256, 65536}, {64, 1, 32, 1}, 128}},
        {"K and V of a page in one pool",
         128,
         bf16,
         32,
         8,
         tensor(131072, 2048, 256),
         {bf16, {128, 8, 32, kPages}, {256, 2048, 131072}, {64, 1, 32, 1}, 128}},
        {"K and V of a token in one pool",
         128,
         bf16,
         32,
         8,
         tensor(131072, 4096, 256),
         {bf16, {128, 8, 32, kPages}, {256, 4096, 131072}, {64, 1, 32, 1}, 128}},
        {"pages of 8", 64, bf16, 8, 8, tensor(8192, 1024, 128), {bf16, {64, 8, 8, kPages}, {128, 1024, 8192}, {64, 1, 8, 1}, 128}},
        {"pages larger than a tile",
         64,
         bf16,
         128,
         8,
         tensor(131072, 1024, 128),
         {bf16, {64, 8, 128, kPages}, {128, 1024, 131072}, {64, 1, 64, 1}, 128}},
        {"contiguous",
         128,
         bf16,
         0,
         8,
         tensor(2048000, 2048, 256),
         {bf16, {128, 8, 1000, 5}, {256, 2048, 2048000}, {64, 1, 64, 1}, 128}},
        {"the smallest head",
         16,
         bf16,
         16,
         2,
         tensor(1024, 64, 32),
         {bf16, {16, 2, 16, kPages}, {32, 64, 1024}, {32, 1, 16, 1}, 64, true}},
        {"the smallest row",
         16,
         fp8,
         16,
         2,
         tensor(512, 32, 16),
         {fp8, {16, 2, 16, kPages}, {16, 32, 512}, {64, 1, 16, 1}, 64, true}},
        {"a last segment that is not full",
         80,
         bf16,
         64,
         2,
         tensor(20480, 320, 160),
         {bf16, {80, 2, 64, kPages}, {160, 320, 20480}, {64, 1, 64, 1}, 128}},
        {"80 bytes", 80, int8, 64, 2, tensor(10240, 160, 80), {int8, {80, 2, 64, kPages}, {80, 160, 10240}, {128, 1, 64, 1}, 128}},
        {"the largest head",
         256,
         bf16,
         32,
         2,
         tensor(32768, 1024, 512),
         {bf16, {256, 2, 32, kPages}, {512, 1024, 32768}, {64, 1, 32, 1}, 128}},
        {"the largest head of 8 bits",
         256,
         fp8,
         32,
         2,
         tensor(16384, 512, 256),
         {fp8, {256, 2, 32, kPages}, {256, 512, 16384}, {128, 1, 32, 1}, 128}},
        {"one KV head, whose stride is nothing",
         128,
         bf16,
         32,
         1,
         tensor(8192, 256, 0),
         {bf16, {128, 1, 32, kPages}, {256, 256, 8192}, {64, 1, 32, 1}, 128}},
        {"one KV head, whose stride is anything",
         128,
         bf16,
         32,
         1,
         tensor(8192, 256, 8 * kTib + 2),
         {bf16, {128, 1, 32, kPages}, {256, 256, 8192}, {64, 1, 32, 1}, 128}},
        {"the largest strides",
         128,
         int8,
         32,
         8,
         tensor(kTib - 16, kTib - 32, kTib - 48),
         {int8, {128, 8, 32, kPages}, {kTib - 48, kTib - 32, kTib - 16}, {128, 1, 32, 1}, 128}},
    };
    for (Row const& row : rows) {
        KernelSpec const spec = gmma_spec(8, row.head_dim, row.kv_dtype, row.page_size);
        // Either operand goes by its own strides.
        device::KvTensor const other = tensor(1 << 20, 1 << 16, 1 << 13);
        TensorMapDescription const k = described(k_tensor_map(spec, arguments(row.num_kv_heads, row.strides, other)));
        TensorMapDescription const v = described(v_tensor_map(spec, arguments(row.num_kv_heads, other, row.strides)));
        INFO(row.what << ": " << k.to_string() << " for " << row.map.to_string());
        CHECK(k == row.map);
        CHECK(v == row.map);
    }
    CHECK(rows[0].map.to_string() ==
          "bf16 [128, 8, 32, 2147483647], strides 256, 2048, 65536 bytes, box [64, 1, 32, 1], swizzle 128 bytes");
}

TEST_CASE("contiguous KV of one sequence, one token or none has a tensor map", "[plan]") {
    KernelSpec const spec = gmma_spec(8, 128, XQAJIT_DTYPE_BF16, 0);
    device::KernelArgs args = arguments(8, tensor(0, 2048, 256), tensor(3 * kTib, 2048, 256));
    args.batch = 1;
    TensorMapDescription const one{XQAJIT_DTYPE_BF16, {128, 8, 1000, 1}, {256, 2048, 256}, {64, 1, 64, 1}, 128};
    CHECK(described(k_tensor_map(spec, args)) == one);
    CHECK(described(v_tensor_map(spec, args)) == one);
    args.k = tensor(2048, 0, 256);
    for (std::int64_t const capacity : {1, 0}) {
        args.capacity = capacity;
        CHECK(described(k_tensor_map(spec, args)) ==
              TensorMapDescription{XQAJIT_DTYPE_BF16, {128, 8, 1, 1}, {256, 256, 256}, {64, 1, 64, 1}, 128});
    }
}

TEST_CASE("a box fits its swizzle and a copy's limits, for every head, type and page", "[plan]") {
    for (std::uint32_t head_dim = 16; head_dim <= 256; head_dim += 16)
        for (std::int32_t const kv_dtype : {XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8})
            for (std::uint32_t const page_size : {0u, 8u, 16u, 32u, 64u, 128u}) {
                KernelSpec const spec = gmma_spec(8, head_dim, kv_dtype, page_size);
                TensorMapDescription const map = described(k_tensor_map(spec, arguments(8, tensor(1 << 20, 1 << 13, 1 << 9), {})));
                INFO(map.to_string());
                std::uint32_t const kv_bytes = dtype_bytes(kv_dtype);
                device::GmmaShape const shape = device::gmma_shape({head_dim, kv_bytes, 8});
                CHECK(map.box[0] * kv_bytes == map.swizzle_bytes);
                CHECK(map.box[0] * shape.segments >= head_dim);
                CHECK(shape.tile_tokens % map.box[2] == 0);
                CHECK((page_size == 0 || page_size % map.box[2] == 0));
                for (std::uint32_t const extent : map.box) CHECK((extent >= 1 && extent <= 256));
                // As many copies of boxes as fill an item.
                CHECK(shape.tile_tokens / map.box[2] * shape.segments * map.box[0] * map.box[2] * kv_bytes == shape.item_bytes);
            }
}

TEST_CASE("a stride that no tensor map can have is refused with its name, its value and what is accepted", "[plan]") {
    KernelSpec const spec = gmma_spec(8);
    struct Stride {
        char const* name;
        device::i64 device::KvTensor::*member;
    };
    for (Stride const& stride : {Stride{"stride_page", &device::KvTensor::stride_page},
                                 {"stride_token", &device::KvTensor::stride_token},
                                 {"stride_head", &device::KvTensor::stride_head}})
        for (std::int64_t const bytes : {std::int64_t{0}, std::int64_t{-256}, std::int64_t{8}, std::int64_t{24}, kTib, 4 * kTib}) {
            device::KvTensor const good = tensor(65536, 2048, 256);
            device::KvTensor bad = good;
            bad.*stride.member = bytes;
            for (auto const& [operand, status] : {std::pair{"k_", k_tensor_map(spec, arguments(8, bad, good)).status()},
                                                  {"v_", v_tensor_map(spec, arguments(8, good, bad)).status()}}) {
                INFO(status.message());
                CHECK(status.code() == XQAJIT_UNSUPPORTED);
                CHECK(contains(status.message(), std::string(operand) + stride.name + " is " + std::to_string(bytes) + " bytes"));
                CHECK(contains(status.message(), "multiples of 16 in 16..1099511627760"));
                CHECK(contains(status.message(), "hmma takes any"));  // the way out
                KernelSpec alone = spec;
                alone.input_kv = true;  // which hmma refuses
                CHECK_FALSE(contains(k_tensor_map(alone, arguments(8, bad, good)).status().message(), "hmma"));
            }
        }
}
