#include "gpu/edge_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "driver/cuda_functions.h"

namespace xqajit::testing {
namespace {

// Those of the driver that only this needs: by their plain names, which have had one signature since CUDA 10.2.
struct Functions {
    decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
};

Functions const& functions() {
    static Functions const all = [] {
        void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        Functions f;
        auto const find = [&](auto& function, char const* name) {
            function = library == nullptr ? nullptr : reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
        };
        find(f.granularity, "cuMemGetAllocationGranularity");
        find(f.reserve, "cuMemAddressReserve");
        find(f.free, "cuMemAddressFree");
        find(f.create, "cuMemCreate");
        find(f.release, "cuMemRelease");
        find(f.map, "cuMemMap");
        find(f.unmap, "cuMemUnmap");
        find(f.set_access, "cuMemSetAccess");
        return f;
    }();
    return all;
}

}  // namespace

Result<EdgeMemory> EdgeMemory::holding(std::span<std::byte const> bytes) {
    Result<driver::CudaLibrary const*> const cuda = driver::open_cuda();
    if (!cuda.ok()) return cuda.status();
    Functions const& f = functions();
    if (f.set_access == nullptr || f.map == nullptr) return unavailable("this driver maps no virtual memory");
    CUdevice device = 0;
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access{};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EdgeMemory edge;
    std::size_t step = 0;
    auto const all_of = [&]() -> CUresult {
        if (CUresult const r = (*cuda)->cuCtxGetDevice(&device)) return r;
        property.location.id = device;
        access.location = property.location;
        if (CUresult const r = f.granularity(&step, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return r;
        std::size_t const size = (bytes.size() + step - 1) / step * step;
        if (CUresult const r = f.reserve(&edge.reserved_, 2 * size, 0, 0, 0)) return r;
        edge.bytes_ = bytes.size();
        edge.end_ = edge.reserved_ + size;
        if (CUresult const r = f.create(&edge.memory_, size, &property, 0)) return r;
        if (CUresult const r = f.map(edge.reserved_, size, 0, edge.memory_, 0)) return r;
        edge.mapped_ = size;
        if (CUresult const r = f.set_access(edge.reserved_, size, &access, 1)) return r;
        return (*cuda)->cuMemcpyHtoD(edge.end_ - edge.bytes_, bytes.data(), bytes.size());
    };
    if (CUresult const result = all_of(); result != CUDA_SUCCESS)
        return driver_error(**cuda, fmt::format("mapping {} bytes to the end of their memory", bytes.size()).c_str(), result);
    return edge;
}

EdgeMemory::EdgeMemory(EdgeMemory&& other) noexcept
    : reserved_(std::exchange(other.reserved_, 0)),
      mapped_(std::exchange(other.mapped_, 0)),
      memory_(std::exchange(other.memory_, 0)),
      end_(std::exchange(other.end_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

EdgeMemory::~EdgeMemory() {
    Functions const& f = functions();
    if (mapped_ != 0) f.unmap(reserved_, mapped_);
    if (memory_ != 0) f.release(memory_);
    if (reserved_ != 0) f.free(reserved_, 2 * (end_ - reserved_));
}

}  // namespace xqajit::testing
