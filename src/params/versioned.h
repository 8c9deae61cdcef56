// Structs of the C interface that grow: struct_size says which header the caller was built against.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status.h"

namespace xqajit {

// A struct_size beyond this is an uninitialised one, and must not make us read so much memory.
inline constexpr std::size_t kLargestStruct = 4096;

// Copies the struct_size bytes that the caller has over a zeroed T and sets struct_size to our own. minimum: the end of the last
// required field. A larger struct, of a newer header, is accepted while what we do not know in it is zero.
template <class T> Status copy_versioned(T const& from, std::size_t minimum, T& to) {
    std::size_t const size = from.struct_size;
    minimum = (minimum + alignof(T) - 1) / alignof(T) * alignof(T);
    if (size < minimum || size > kLargestStruct || size % alignof(T) != 0)
        return invalid_argument(fmt::format("struct_size is {}: accepted are multiples of {} in {}..{}; {} is this version's", size,
                                            alignof(T), minimum, kLargestStruct, sizeof(T)));
    auto const* const bytes = reinterpret_cast<unsigned char const*>(&from);
    for (std::size_t i = sizeof(T); i < size; ++i)
        if (bytes[i] != 0)
            return invalid_argument(
                fmt::format("byte {} of a struct with struct_size {} is {}: accepted is 0 past {} bytes, "
                            "which are what this version knows",
                            i, size, bytes[i], sizeof(T)));
    to = T{};
    std::memcpy(static_cast<void*>(&to), bytes, std::min(size, sizeof(T)));
    to.struct_size = sizeof(T);
    return {};
}

}  // namespace xqajit
