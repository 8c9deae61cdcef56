// The compiler of a service: found when a key is first made, opened when a compile is first needed.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/settings.h"
#include "jit/compiler.h"
#include "jit/nvrtc_library.h"

namespace xqajit {

// Thread-safe.
class Toolchain {
public:
    explicit Toolchain(Settings const& settings) : settings_(settings) {}

    // Reads a file's notes and loads nothing. A failure is tried again by the next call, so that a library installed meanwhile is seen.
    Result<NvrtcIdentity> identity();
    // Loads the library.
    Result<std::shared_ptr<NvrtcLibrary const>> library();
    // Where XQAJIT_COMPILE says. Without a worker to be found: in this process, with one warning.
    Result<CompiledImage> compile(CompileRequest const& request);
    Result<CompiledImage> compile_in_process(CompileRequest const& request);
    Result<CompiledImage> compile_in_worker(std::string const& worker, CompileRequest const& request);
    Result<std::string> worker() const { return find_worker(settings_); }
    void warn_without_worker(Status const& why);

private:
    Settings const& settings_;
    std::mutex mutex_;
    std::optional<NvrtcIdentity> identity_;
    std::shared_ptr<NvrtcLibrary const> library_;
    std::atomic<bool> warned_{false};
};

}  // namespace xqajit
