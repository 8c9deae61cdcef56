#include "reference/codec.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace xqajit::testing {
namespace {

struct FloatFormat {
    int exponent_bits;
    int mantissa_bits;
    int min_exponent;        // of the smallest normal number
    std::uint32_t max_bits;  // largest finite magnitude
    std::uint32_t nan_bits;
    bool has_infinity;  // at max_bits + 1; without it overflow saturates
};

// clang-format off
constexpr FloatFormat kFp16{5, 10,  -14, 0x7BFF, 0x7E00, true};
constexpr FloatFormat kBf16{8,  7, -126, 0x7F7F, 0x7FC0, true};
constexpr FloatFormat kE4m3{4,  3,   -6,   0x7E,   0x7F, false};
// clang-format on

double decode_float(FloatFormat const& format, std::uint32_t bits) {
    std::uint32_t const sign_bit = 1U << (format.exponent_bits + format.mantissa_bits);
    std::uint32_t const magnitude = bits & (sign_bit - 1);
    double value;
    if (magnitude <= format.max_bits) {
        auto const exponent = static_cast<int>(magnitude >> format.mantissa_bits);
        std::uint32_t const mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
        std::uint32_t const significand = exponent == 0 ? mantissa : mantissa | 1U << format.mantissa_bits;
        value = std::ldexp(significand, format.min_exponent + std::max(exponent - 1, 0) - format.mantissa_bits);
    } else if (format.has_infinity && magnitude == format.max_bits + 1) {
        value = std::numeric_limits<double>::infinity();
    } else {
        value = std::numeric_limits<double>::quiet_NaN();
    }
    return bits & sign_bit ? -value : value;
}

std::uint32_t encode_float(FloatFormat const& format, double value) {
    std::uint32_t const sign = std::signbit(value) ? 1U << (format.exponent_bits + format.mantissa_bits) : 0;
    if (std::isnan(value)) return sign | format.nan_bits;
    std::uint32_t const overflow = format.has_infinity ? format.max_bits + 1 : format.max_bits;
    double const magnitude = std::fabs(value);
    if (magnitude > 2 * decode_float(format, format.max_bits)) return sign | overflow;
    if (magnitude == 0) return sign;
    int const exponent = std::max(std::ilogb(magnitude), format.min_exponent);
    // Scaling by a power of two is exact, so that nearbyint makes the only rounding. A carry runs into the exponent field by itself.
    auto const significand = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
    std::uint32_t const bits = (static_cast<std::uint32_t>(exponent - format.min_exponent) << format.mantissa_bits) + significand;
    return sign | std::min(bits, overflow);
}

std::vector<float> make_table(std::int32_t dtype) {
    std::vector<float> table(bytes_of(dtype) == 1 ? 256 : 65536);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(decode(dtype, static_cast<std::uint32_t>(i)));
    return table;
}

}  // namespace

std::uint32_t bytes_of(std::int32_t dtype) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
        case XQAJIT_DTYPE_BF16:
            return 2;
        case XQAJIT_DTYPE_FP8_E4M3:
        case XQAJIT_DTYPE_INT8:
            return 1;
        default:
            return 0;
    }
}

char const* name_of(std::int32_t dtype) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
            return "fp16";
        case XQAJIT_DTYPE_BF16:
            return "bf16";
        case XQAJIT_DTYPE_FP8_E4M3:
            return "fp8_e4m3";
        case XQAJIT_DTYPE_INT8:
            return "int8";
        default:
            return "none";
    }
}

double decode(std::int32_t dtype, std::uint32_t bits) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
            return decode_float(kFp16, bits);
        case XQAJIT_DTYPE_BF16:
            return decode_float(kBf16, bits);
        case XQAJIT_DTYPE_FP8_E4M3:
            return decode_float(kE4m3, bits);
        case XQAJIT_DTYPE_INT8:
            return static_cast<std::int8_t>(bits);
        default:
            return std::numeric_limits<double>::quiet_NaN();
    }
}

std::uint32_t encode(std::int32_t dtype, double value) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
            return encode_float(kFp16, value);
        case XQAJIT_DTYPE_BF16:
            return encode_float(kBf16, value);
        case XQAJIT_DTYPE_FP8_E4M3:
            return encode_float(kE4m3, value);
        case XQAJIT_DTYPE_INT8:
            return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::clamp(std::nearbyint(value), -128.0, 127.0)));
        default:
            return 0;
    }
}

float const* decode_table(std::int32_t dtype) {
    static std::vector<float> const fp16 = make_table(XQAJIT_DTYPE_FP16);
    static std::vector<float> const bf16 = make_table(XQAJIT_DTYPE_BF16);
    static std::vector<float> const fp8 = make_table(XQAJIT_DTYPE_FP8_E4M3);
    static std::vector<float> const int8 = make_table(XQAJIT_DTYPE_INT8);
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
            return fp16.data();
        case XQAJIT_DTYPE_BF16:
            return bf16.data();
        case XQAJIT_DTYPE_FP8_E4M3:
            return fp8.data();
        case XQAJIT_DTYPE_INT8:
            return int8.data();
        default:
            return nullptr;
    }
}

std::uint32_t e4m3_steps(std::uint8_t code, std::uint8_t low, std::uint8_t high) {
    auto const is_nan = [](std::uint8_t x) { return (x & 0x7F) == 0x7F; };
    if (is_nan(code) || is_nan(low) || is_nan(high)) return is_nan(code) && is_nan(low) && is_nan(high) ? 0 : 256;
    auto const rank = [](std::uint8_t x) { return x & 0x80 ? -(x & 0x7F) : x & 0x7F; };
    return static_cast<std::uint32_t>(std::max({0, rank(low) - rank(code), rank(code) - rank(high)}));
}

}  // namespace xqajit::testing
