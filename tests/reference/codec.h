// Bits of an element type to numbers and back, as the hardware defines them. Independent of the library: it is what the library is
// checked against.
#pragma once

#include <cstdint>
#include <cstring>

#include "xqajit/xqajit.h"

namespace xqajit::testing {

// Bytes of one element; 0 for a value that is no element type. Types are xqajit_dtype, never DEFAULT.
std::uint32_t bytes_of(std::int32_t dtype);
char const* name_of(std::int32_t dtype);

// Exact. Both infinities and NaN are kept.
double decode(std::int32_t dtype, std::uint32_t bits);
// Round to nearest, ties to even. fp16 and bf16 overflow to infinity; e4m3 and int8 saturate (e4m3 keeps NaN).
std::uint32_t encode(std::int32_t dtype, double value);

// decode() of every bit pattern: 65536 entries for 16-bit types, 256 for 8-bit ones.
float const* decode_table(std::int32_t dtype);

// Codes between `code` and the nearest of low..high (low <= high as values): 0 inside; 256 where only some are NaN.
std::uint32_t e4m3_steps(std::uint8_t code, std::uint8_t low, std::uint8_t high);

inline std::uint32_t load_bits(std::uint8_t const* base, std::int64_t index, std::uint32_t element_bytes) {
    if (element_bytes == 1) return base[index];
    std::uint16_t bits;
    std::memcpy(&bits, base + index * 2, 2);
    return bits;
}

inline void store_bits(std::uint8_t* base, std::int64_t index, std::uint32_t element_bytes, std::uint32_t bits) {
    if (element_bytes == 1) {
        base[index] = static_cast<std::uint8_t>(bits);
        return;
    }
    auto const narrow = static_cast<std::uint16_t>(bits);
    std::memcpy(base + index * 2, &narrow, 2);
}

}  // namespace xqajit::testing
