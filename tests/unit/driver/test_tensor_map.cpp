#include "driver/tensor_map.h"

#include "fixture.h"

namespace xqajit::driver {
namespace {

// NHD pages of 32 tokens of 8 heads of 128 elements of two bytes.
TensorMapDescription plain() { return {XQAJIT_DTYPE_BF16, {128, 8, 32, 0x7fffffff}, {256, 2048, 65536}, {64, 1, 32, 1}, 128}; }

void* const kBase = reinterpret_cast<void*>(0x7f0000001230);

}  // namespace

TEST_CASE("an encoded tensor map has what was described, and is made by one call of the driver", "[driver]") {
    struct Row {
        std::int32_t dtype;
        std::uint32_t swizzle_bytes;
        CUtensorMapDataType type;
        CUtensorMapSwizzle swizzle;
    };
    for (Row const& row : {Row{XQAJIT_DTYPE_BF16, 128, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B},
                           {XQAJIT_DTYPE_BF16, 64, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_64B},
                           {XQAJIT_DTYPE_FP16, 128, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_SWIZZLE_128B},
                           {XQAJIT_DTYPE_FP8_E4M3, 128, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_128B},
                           {XQAJIT_DTYPE_INT8, 64, CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_SWIZZLE_64B}}) {
        TensorMapDescription described = plain();
        described.dtype = row.dtype;
        described.swizzle_bytes = row.swizzle_bytes;
        described.box[0] = row.swizzle_bytes / 2;
        bool const half_lines = described.promotes_to_lines = row.swizzle_bytes == 64;
        INFO(described.to_string());
        REQUIRE(open_cuda().ok());
        fake().reset_calls();
        device::TensorMap map{};
        REQUIRE(encode_tensor_map(described, kBase, map).ok());
        CHECK(fake().total_calls() == 1);
        FakeTensorMap const seen = fake_tensor_map(&map);
        CHECK(seen.address == reinterpret_cast<std::uint64_t>(kBase));
        CHECK(seen.rank == 4);
        for (std::size_t i = 0; i < 4; ++i) {
            CHECK(seen.dims[i] == described.dims[i]);
            CHECK(seen.box[i] == described.box[i]);
            CHECK(seen.element_strides[i] == 1);
            if (i < 3) CHECK(seen.strides[i] == described.strides[i]);
        }
        CHECK(seen.type == row.type);
        CHECK(seen.swizzle == row.swizzle);
        CHECK(seen.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
        CHECK(seen.l2_promotion == (half_lines ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B : CU_TENSOR_MAP_L2_PROMOTION_NONE));
        CHECK(seen.oob_fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    }
}

TEST_CASE("a tensor map that the driver refuses is an error with its name, its reason and every value", "[driver]") {
    using Edit = void (*)(TensorMapDescription&);
    device::TensorMap map{{7}};
    for (Edit const edit :
         {Edit([](TensorMapDescription& d) { d.dims[3] = 0; }),
          Edit([](TensorMapDescription& d) { d.dims[1] = (std::uint64_t{1} << 32) + 1; }),
          Edit([](TensorMapDescription& d) { d.strides[0] = 24; }),
          Edit([](TensorMapDescription& d) { d.strides[2] = std::uint64_t{1} << 40; }),
          Edit([](TensorMapDescription& d) { d.box[2] = 257; }), Edit([](TensorMapDescription& d) { d.box[0] = 128; })}) {
        TensorMapDescription described = plain();
        edit(described);
        Status const status = encode_tensor_map(described, kBase, map);
        INFO(status.message());
        CHECK(status.code() == XQAJIT_DRIVER_ERROR);
        CHECK(status.message() == "cuTensorMapEncodeTiled (" + described.to_string() +
                                      " at 0x7f0000001230): CUDA_ERROR_INVALID_VALUE (1): invalid argument");
    }
    for (void* const base : {static_cast<void*>(nullptr), static_cast<void*>(static_cast<char*>(kBase) + 8)})
        CHECK(encode_tensor_map(plain(), base, map).code() == XQAJIT_DRIVER_ERROR);
    fake().fail("cuTensorMapEncodeTiled", CUDA_ERROR_INVALID_CONTEXT);
    CHECK(contains(encode_tensor_map(plain(), kBase, map).message(), "CUDA_ERROR_INVALID_CONTEXT (201)"));
    CHECK(map.word[0] == 7);
}

}  // namespace xqajit::driver
