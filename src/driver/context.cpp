#include "driver/context.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "driver/cuda_functions.h"

namespace xqajit::driver {
namespace {

// Context id -> facts. Readers walk a chain of entries that are never changed or freed: a process has few contexts, and the library's
// users keep the pointers. Nothing is dropped when a context dies, since its id does not come back.
class ContextCache {
public:
    ContextInfo const* find(std::uint64_t id) const {
        for (Entry const* entry = bucket(id).load(std::memory_order_acquire); entry != nullptr; entry = entry->next)
            if (entry->info.id == id) return &entry->info;
        return nullptr;
    }

    // Returns the entry that stays: another thread may have been first.
    ContextInfo const* insert(ContextInfo info) {
        std::lock_guard const lock(mutex_);
        if (ContextInfo const* known = find(info.id)) return known;
        std::atomic<Entry const*>& head = bucket(info.id);
        auto entry = std::make_unique<Entry const>(Entry{std::move(info), head.load(std::memory_order_relaxed)});
        head.store(entry.get(), std::memory_order_release);
        return &entry.release()->info;
    }

private:
    struct Entry {
        ContextInfo info;
        Entry const* next;
    };
    std::atomic<Entry const*>& bucket(std::uint64_t id) { return buckets_[id % buckets_.size()]; }
    std::atomic<Entry const*> const& bucket(std::uint64_t id) const { return buckets_[id % buckets_.size()]; }

    std::array<std::atomic<Entry const*>, 64> buckets_{};
    std::mutex mutex_;
};

ContextCache& context_cache() {
    static auto& cache = *new ContextCache;  // outlives the static objects that may still look into it
    return cache;
}

std::string uuid_text(CUuuid const& uuid) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
}

// Device facts by the context, never by ordinal 0. The context is current.
Result<ContextInfo> read_facts(CudaLibrary const& cuda, CUcontext context, std::uint64_t id) {
    ContextInfo info;
    info.context = context;
    info.id = id;
    CUdevice device = 0;
    if (CUresult const result = cuda.cuCtxGetDevice(&device); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuCtxGetDevice", result);
    info.device = device;

    struct Query {
        CUdevice_attribute attribute;
        char const* call;
        int value;
    };
    Query queries[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "cuDeviceGetAttribute (compute capability major)", 0},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "cuDeviceGetAttribute (compute capability minor)", 0},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "cuDeviceGetAttribute (multiprocessor count)", 0},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "cuDeviceGetAttribute (shared memory per block)", 0},
    };
    for (Query& query : queries)
        if (CUresult const result = cuda.cuDeviceGetAttribute(&query.value, query.attribute, device); result != CUDA_SUCCESS)
            return driver_error(cuda, query.call, result);
    auto const value = [&](int i) { return static_cast<std::uint32_t>(queries[i].value); };

    Result<ArchFacts> arch = arch_from_capability(value(0), value(1));
    if (!arch.ok()) return arch.status();
    info.arch = *std::move(arch);
    info.arch.sm_count = value(2);
    info.arch.smem_optin = value(3);

    char name[256] = "";
    if (CUresult const result = cuda.cuDeviceGetName(name, sizeof name, device); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuDeviceGetName", result);
    info.device_name = name;
    CUuuid uuid{};
    if (CUresult const result = cuda.cuDeviceGetUuid(&uuid, device); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuDeviceGetUuid", result);
    info.device_uuid = uuid_text(uuid);
    return info;
}

Result<ContextInfo const*> facts_of(CudaLibrary const& cuda, CUcontext context) {
    unsigned long long id = 0;
    if (CUresult const result = cuda.cuCtxGetId(context, &id); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuCtxGetId", result);
    if (ContextInfo const* info = context_cache().find(id)) return info;
    Result<ScopedContext> const scope = ScopedContext::enter(context);
    if (!scope.ok()) return scope.status();
    Result<ContextInfo> info = read_facts(cuda, context, id);
    if (!info.ok()) return info.status();
    return context_cache().insert(*std::move(info));
}

Status no_current_context() {
    return unavailable(
        "no CUDA context is current on this thread: make one current (cudaSetDevice, cuCtxSetCurrent) or pass its stream");
}

}  // namespace

Result<ContextInfo const*> context_of(CUstream stream) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    CUcontext context = nullptr;
    if (CUresult const result = cuda.cuStreamGetCtx(stream, &context); result != CUDA_SUCCESS) {
        if (result == CUDA_ERROR_INVALID_CONTEXT && stream == nullptr) return no_current_context();
        return driver_error(cuda, "cuStreamGetCtx", result);
    }
    if (context == nullptr) return no_current_context();
    return facts_of(cuda, context);
}

Result<ContextInfo const*> current_context() {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    CUcontext context = nullptr;
    if (CUresult const result = cuda.cuCtxGetCurrent(&context); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuCtxGetCurrent", result);
    if (context == nullptr) return no_current_context();
    return facts_of(cuda, context);
}

Result<ScopedContext> ScopedContext::enter(CUcontext context) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    ScopedContext scope;
    CUcontext current = nullptr;
    if (cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context) return scope;
    if (CUresult const result = cuda.cuCtxPushCurrent(context); result != CUDA_SUCCESS)
        return driver_error(cuda, "cuCtxPushCurrent", result);
    scope.pushed_ = true;
    return scope;
}

ScopedContext::ScopedContext(ScopedContext&& other) noexcept : pushed_(std::exchange(other.pushed_, false)) {}

ScopedContext::~ScopedContext() {
    if (!pushed_) return;
    CUcontext popped = nullptr;
    (*open_cuda())->cuCtxPopCurrent(&popped);
}

Result<bool> is_capturing(CUstream stream) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult const result = cuda.cuStreamIsCapturing(stream, &state);
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    if (result != CUDA_SUCCESS) return driver_error(cuda, "cuStreamIsCapturing", result);
    return state != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace xqajit::driver
