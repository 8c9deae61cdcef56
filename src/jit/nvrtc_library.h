// The NVRTC library: found without loading it, loaded when a compile needs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/settings.h"

namespace xqajit {

struct NvrtcIdentity {
    std::string path;   // resolved
    Digest build;       // of the ELF build-id (or of name, size where there is none): read from the file, not by dlopen
    std::string origin; // "XQAJIT_NVRTC_PATH", "loader path", "CUDA_HOME", "python wheel"
};

// Search: XQAJIT_NVRTC_PATH alone if set, else loader path, CUDA_HOME, pip's nvidia/*/lib. UNAVAILABLE lists every place looked at.
Result<NvrtcIdentity> find_nvrtc(Settings const& settings);

class NvrtcLibrary {
public:
    static Result<std::shared_ptr<NvrtcLibrary const>> open(NvrtcIdentity const& identity);
    int version_major() const { return major_; }
    int version_minor() const { return minor_; }
    std::string version() const; // "13.0"
    std::vector<int> const& supported_archs() const { return archs_; } // 80, 86, 90 ...
    bool knows_no_cache() const { return major_ > 12 || (major_ == 12 && minor_ >= 9); }
    struct Functions;
    Functions const& functions() const { return *functions_; }
    ~NvrtcLibrary();

private:
    NvrtcLibrary();
    int major_ = 0, minor_ = 0;
    std::vector<int> archs_;
    std::unique_ptr<Functions> functions_;
    void* library_ = nullptr;
};

} // namespace xqajit
