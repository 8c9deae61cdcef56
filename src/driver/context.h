// The context a call works in, and its device's facts.
#pragma once

#include <cstdint>
#include <string>

#include "driver/cuda_library.h"

namespace xqajit::driver {

struct ContextInfo {
    CUcontext context = nullptr;
    std::uint64_t id = 0;  // cuCtxGetId: never reused in a process
    int device = 0;        // ordinal
    ArchFacts arch;        // of that device, sm_count and smem_optin its own
    std::string device_name;
    std::string device_uuid;  // "GPU-01234567-89ab-cdef-0123-456789abcdef"
};

// Facts are read once a context id and kept for the life of the process, so the pointer stays valid; the warm call is one cuStreamGetCtx
// and one cuCtxGetId, and takes no lock. A null stream means the thread's current context; UNAVAILABLE if none is current.
Result<ContextInfo const*> context_of(CUstream stream);
Result<ContextInfo const*> current_context();

// Makes a context current for a scope.
class ScopedContext {
public:
    static Result<ScopedContext> enter(CUcontext context);
    ScopedContext(ScopedContext&& other) noexcept;
    ScopedContext& operator=(ScopedContext&&) = delete;
    ~ScopedContext();

private:
    ScopedContext() = default;
    bool pushed_ = false;  // false: it was current already
};

// Whether work given to the stream would join a capture. True as well for the default stream while another stream's capture
// forbids its use, and for a capture that has become invalid.
Result<bool> is_capturing(CUstream stream);

}  // namespace xqajit::driver
