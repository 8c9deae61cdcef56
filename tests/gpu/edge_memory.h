// Device memory that ends where its mapping does: whoever reads one byte past it faults, without a sanitizer.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"

namespace xqajit::testing {

// Of the context that is current when it is made, and must be when it is destroyed.
class EdgeMemory {
public:
    // A copy of the bytes, whose last is the mapping's last. They are aligned as far as their number is.
    static Result<EdgeMemory> holding(std::span<std::byte const> bytes);
    template <class T> static Result<EdgeMemory> holding(std::vector<T> const& values) {
        return holding(std::as_bytes(std::span(values)));
    }
    EdgeMemory(EdgeMemory&& other) noexcept;
    EdgeMemory& operator=(EdgeMemory&&) = delete;
    ~EdgeMemory();

    template <class T> T const* data() const { return reinterpret_cast<T const*>(end_ - bytes_); }

private:
    EdgeMemory() = default;
    CUdeviceptr reserved_ = 0;  // twice the mapping: nothing is mapped behind it
    std::size_t mapped_ = 0;
    CUmemGenericAllocationHandle memory_ = 0;
    CUdeviceptr end_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace xqajit::testing
