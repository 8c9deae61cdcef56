// The NVRTC library: found without loading it, loaded when a compile needs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/settings.h"
#include "base/status.h"

namespace xqajit {

struct NvrtcIdentity {
    std::string path;    // absolute, symbolic links resolved
    Digest build;        // of the ELF build-id (or of name, size where there is none): read from the file, not by dlopen
    std::string origin;  // "XQAJIT_NVRTC_PATH", "loader path", "CUDA_HOME", "python wheel"
};

// Of the library in this file: UNAVAILABLE if it is none.
Result<NvrtcIdentity> identify_nvrtc(std::string const& file, std::string const& origin);

// Search: XQAJIT_NVRTC_PATH (a library or its directory) alone if set, else loader path, CUDA_HOME, pip's nvidia/*/lib. The first
// directory that has a library wins; in it the highest version. UNAVAILABLE lists every place looked at.
Result<NvrtcIdentity> find_nvrtc(Settings const& settings);

// Thread-safe. Stays loaded until the process ends.
class NvrtcLibrary {
public:
    // UNAVAILABLE: not loadable, not the build that the identity tells, a function is missing, or older than 12.4.
    static Result<std::shared_ptr<NvrtcLibrary const>> open(NvrtcIdentity const& identity);
    std::string version() const;                                        // "13.0"
    std::vector<int> const& supported_archs() const { return archs_; }  // 80, 86, 90 ...
    bool at_least(int major, int minor) const { return major_ > major || (major_ == major && minor_ >= minor); }
    bool knows_no_cache() const { return at_least(12, 9); }
    struct Functions;
    Functions const& functions() const { return *functions_; }
    ~NvrtcLibrary();

private:
    NvrtcLibrary();
    int major_ = 0, minor_ = 0;
    std::vector<int> archs_;
    std::unique_ptr<Functions> functions_;
};

}  // namespace xqajit
