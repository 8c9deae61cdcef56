// The context a call works in, and its device's facts.
#pragma once

#include "driver/cuda_library.h"

namespace xqajit::driver {

struct ContextInfo {
    CUcontext context = nullptr;
    std::uint64_t id = 0;      // cuCtxGetId: never reused in a process
    int device = 0;            // ordinal
    ArchFacts arch;            // of that device, sm_count and smem_optin its own
    std::string device_name;
    std::string device_uuid;
};

// Facts are read once a context id and kept; the warm call is one cuStreamGetCtx and one cuCtxGetId.
Result<ContextInfo const*> context_of(CUstream stream);
Result<ContextInfo const*> current_context();

// Makes a context current for a scope.
class ScopedContext {
public:
    static Result<ScopedContext> enter(CUcontext context);
    ScopedContext(ScopedContext&& other) noexcept;
    ~ScopedContext();

private:
    ScopedContext() = default;
    bool pushed_ = false;
};

Result<bool> is_capturing(CUstream stream);

} // namespace xqajit::driver
