#include <cmath>
#include <limits>

#include "catch.h"
#include "reference/codec.h"

using namespace xqajit::testing;

namespace {

constexpr std::int32_t kTypes[] = {XQAJIT_DTYPE_FP16, XQAJIT_DTYPE_BF16, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8};

std::uint32_t codes_of(std::int32_t dtype) { return bytes_of(dtype) == 1 ? 256 : 65536; }

}  // namespace

TEST_CASE("every code of every type survives a decode and an encode", "[reference]") {
    for (std::int32_t const dtype : kTypes) {
        std::uint32_t wrong = 0;
        for (std::uint32_t bits = 0; bits < codes_of(dtype); ++bits) {
            double const value = decode(dtype, bits);
            std::uint32_t const back = encode(dtype, value);
            wrong += std::isnan(value) ? !std::isnan(decode(dtype, back)) : back != bits;
            wrong += !std::isnan(value) && decode_table(dtype)[bits] != value;
        }
        INFO(name_of(dtype));
        CHECK(wrong == 0);
    }
}

TEST_CASE("known codes decode to known numbers", "[reference]") {
    struct {
        std::int32_t dtype;
        std::uint32_t bits;
        double value;
    } const rows[] = {
        {XQAJIT_DTYPE_FP16, 0x3C00, 1},
        {XQAJIT_DTYPE_FP16, 0x7BFF, 65504},
        {XQAJIT_DTYPE_FP16, 0x0001, std::ldexp(1.0, -24)},
        {XQAJIT_DTYPE_FP16, 0xFC00, -std::numeric_limits<double>::infinity()},
        {XQAJIT_DTYPE_BF16, 0x3F80, 1},
        {XQAJIT_DTYPE_BF16, 0xC040, -3},
        {XQAJIT_DTYPE_BF16, 0x0001, std::ldexp(1.0, -133)},
        {XQAJIT_DTYPE_FP8_E4M3, 0x38, 1},
        {XQAJIT_DTYPE_FP8_E4M3, 0x7E, 448},
        {XQAJIT_DTYPE_FP8_E4M3, 0x01, std::ldexp(1.0, -9)},
        {XQAJIT_DTYPE_FP8_E4M3, 0x08, std::ldexp(1.0, -6)},
        {XQAJIT_DTYPE_INT8, 0x80, -128},
        {XQAJIT_DTYPE_INT8, 0x7F, 127},
    };
    for (auto const& row : rows) {
        INFO(name_of(row.dtype) << " bits " << row.bits);
        CHECK(decode(row.dtype, row.bits) == row.value);
    }
    CHECK(std::isnan(decode(XQAJIT_DTYPE_FP8_E4M3, 0x7F)));
    CHECK(std::isnan(decode(XQAJIT_DTYPE_FP8_E4M3, 0xFF)));
    CHECK(std::isnan(decode(XQAJIT_DTYPE_BF16, 0xFFFF)));
}

TEST_CASE("a number between two codes goes to the nearer, and half way to the even one", "[reference]") {
    for (std::int32_t const dtype : kTypes) {
        std::uint32_t const last = dtype == XQAJIT_DTYPE_FP16   ? 0x7BFF
                                   : dtype == XQAJIT_DTYPE_BF16 ? 0x7F7F
                                   : dtype == XQAJIT_DTYPE_INT8 ? 0x7F
                                                                : 0x7E;
        std::uint32_t wrong = 0;
        for (std::uint32_t bits = 0; bits < last; ++bits) {
            double const low = decode(dtype, bits);
            double const high = decode(dtype, bits + 1);
            double const middle = low + (high - low) / 2;
            wrong += encode(dtype, middle) != (bits % 2 == 0 ? bits : bits + 1);
            wrong += encode(dtype, std::nextafter(middle, low)) != bits;
            wrong += encode(dtype, std::nextafter(middle, high)) != bits + 1;
        }
        INFO(name_of(dtype));
        CHECK(wrong == 0);
    }
}

TEST_CASE("overflow goes to infinity in 16-bit types and saturates in 8-bit ones", "[reference]") {
    CHECK(encode(XQAJIT_DTYPE_FP16, 65519) == 0x7BFF);
    CHECK(encode(XQAJIT_DTYPE_FP16, 65520) == 0x7C00);
    CHECK(encode(XQAJIT_DTYPE_FP16, -1e300) == 0xFC00);
    CHECK(encode(XQAJIT_DTYPE_BF16, 1e39) == 0x7F80);
    for (double const big : {449.0, 480.0, 1e9, std::numeric_limits<double>::infinity()}) {
        CHECK(encode(XQAJIT_DTYPE_FP8_E4M3, big) == 0x7E);
        CHECK(encode(XQAJIT_DTYPE_FP8_E4M3, -big) == 0xFE);
        CHECK(encode(XQAJIT_DTYPE_INT8, big) == 0x7F);
        CHECK(encode(XQAJIT_DTYPE_INT8, -big) == 0x80);
    }
}

TEST_CASE("an e4m3 code is as many steps off a range as there are values between them", "[reference]") {
    CHECK(e4m3_steps(0x00, 0x80, 0x80) == 0);
    CHECK(e4m3_steps(0x01, 0x81, 0x81) == 2);
    CHECK(e4m3_steps(0x37, 0x38, 0x38) == 1);
    CHECK(e4m3_steps(0x37, 0x38, 0x40) == 1);
    CHECK(e4m3_steps(0x42, 0x38, 0x40) == 2);
    CHECK(e4m3_steps(0x3A, 0x38, 0x40) == 0);
    CHECK(e4m3_steps(0x01, 0x83, 0x03) == 0);
    CHECK(e4m3_steps(0xFE, 0x7E, 0x7E) == 252);
    CHECK(e4m3_steps(0x7F, 0x7E, 0x7E) == 256);
    CHECK(e4m3_steps(0x00, 0x00, 0x7F) == 256);
    CHECK(e4m3_steps(0x7F, 0xFF, 0xFF) == 0);
}
