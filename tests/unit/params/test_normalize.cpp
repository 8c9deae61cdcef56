#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "catch.h"
#include "params/versioned.h"
#include "unit/params/shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

// A struct of any size with the given bytes in front, as a caller built against another header has it.
class Foreign {
public:
    Foreign(XQAParams const& params, std::size_t size) : storage_(kLargestStruct / sizeof(std::uint64_t) + 1) {
        std::memcpy(bytes(), &params, std::min(size, sizeof params));
        auto const size32 = static_cast<std::uint32_t>(size);
        std::memcpy(bytes(), &size32, sizeof size32);
    }
    unsigned char* bytes() { return reinterpret_cast<unsigned char*>(storage_.data()); }
    XQAParams const& params() { return *reinterpret_cast<XQAParams const*>(storage_.data()); }

private:
    std::vector<std::uint64_t> storage_;
};

}  // namespace

TEST_CASE("every default is filled in", "[params]") {
    auto const shape = normalize(decode_shape());
    REQUIRE(shape.ok());
    CHECK(shape->kv_dtype == XQAJIT_DTYPE_BF16);
    CHECK(shape->out_dtype == XQAJIT_DTYPE_BF16);
    CHECK(shape->numeric == XQAJIT_NUMERIC_EXACT16);
    CHECK(shape->head_dim_v == 128);
    CHECK(shape->beam_width == 1);
    CHECK(shape->q_len == 1);
    CHECK(shape->rotary_dim == 0);
    CHECK(shape->qk_scale == 1.0f / std::sqrt(128.0f));

    auto const mla = normalize(mla_shape());
    REQUIRE(mla.ok());
    CHECK(mla->head_dim_v == 512);
    CHECK(mla->qk_scale == mla_shape().qk_scale);

    XQAParams rope = decode_shape();
    rope.input_kv = 1;
    rope.rope_style = XQAJIT_ROPE_GPTJ;
    CHECK(normalize(rope)->rotary_dim == 128);
}

TEST_CASE("what the caller set is kept, and normalizing again changes nothing", "[params]") {
    XQAParams params = decode_shape();
    params.kv_dtype = XQAJIT_DTYPE_INT8;
    params.out_dtype = XQAJIT_DTYPE_FP8_E4M3;
    params.numeric = XQAJIT_NUMERIC_FP8;
    params.qk_scale = 0.25f;
    params.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    params.q_len = 5;
    auto const once = normalize(params);
    REQUIRE(once.ok());
    CHECK(once->kv_dtype == XQAJIT_DTYPE_INT8);
    CHECK(once->out_dtype == XQAJIT_DTYPE_FP8_E4M3);
    CHECK(once->numeric == XQAJIT_NUMERIC_FP8);
    CHECK(once->qk_scale == 0.25f);
    CHECK(once->q_len == 5);
    auto const twice = normalize(*once);
    REQUIRE(twice.ok());
    CHECK(std::memcmp(&*once, &*twice, sizeof(XQAParams)) == 0);
}

TEST_CASE("a struct of an older header works, its missing fields being zero", "[params]") {
    XQAParams params = decode_shape();
    params.on_miss = XQAJIT_ON_MISS_REFUSE;  // beyond what the older header has
    for (std::size_t size = kParamsMinimumSize; size < sizeof(XQAParams); size += 4) {
        CAPTURE(size);
        Foreign older(params, size);
        // What follows the caller's struct is not ours to read.
        std::memset(older.bytes() + size, 0xff, sizeof(XQAParams) - size);
        auto const normalized = normalize(older.params());
        REQUIRE(normalized.ok());
        CHECK(normalized->struct_size == sizeof(XQAParams));
        CHECK(normalized->on_miss == XQAJIT_ON_MISS_DEFAULT);
        CHECK(normalized->head_dim == 128);
        CHECK(validate(*normalized).ok());
    }
}

TEST_CASE("a struct of a newer header works while its unknown fields are zero", "[params]") {
    for (std::size_t const size : {sizeof(XQAParams) + 4, sizeof(XQAParams) + 64, kLargestStruct}) {
        CAPTURE(size);
        Foreign newer(decode_shape(), size);
        CHECK(normalize(newer.params()).ok());
        newer.bytes()[size - 1] = 1;
        Status const status = normalize(newer.params()).status();
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(status.message(), "byte " + std::to_string(size - 1)));
        CHECK(contains(status.message(), "struct_size " + std::to_string(size)));
    }
}

TEST_CASE("a struct_size that cannot be right is refused", "[params]") {
    for (std::size_t const size : {std::size_t{0}, std::size_t{4}, kParamsMinimumSize - 4, kParamsMinimumSize + 1,
                                   sizeof(XQAParams) - 2, kLargestStruct + 4, std::size_t{0xffffffff}}) {
        CAPTURE(size);
        XQAParams params = decode_shape();
        params.struct_size = static_cast<std::uint32_t>(size);
        Status const status = normalize(params).status();
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(status.message(), "struct_size is " + std::to_string(size) + ": accepted are "));
    }
}

TEST_CASE("the same rules hold for a launch's arguments", "[params]") {
    RunArgs args{};
    args.struct_size = kRunArgsMinimumSize;
    CHECK(normalize_args(*normalize(decode_shape()), args).ok());
    for (std::uint32_t const size :
         {0u, static_cast<std::uint32_t>(kRunArgsMinimumSize) - 8, static_cast<std::uint32_t>(sizeof args) - 4}) {
        args.struct_size = size;
        CHECK(contains(normalize_args(*normalize(decode_shape()), args).status().message(),
                       "struct_size is " + std::to_string(size)));
    }
}
