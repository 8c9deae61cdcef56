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
    // Whether compile() could begin with this target: the reason if not. Loads the library.
    Status can_compile(std::string const& target);
    // Where XQAJIT_COMPILE says, in worker_to_use().
    Result<CompiledImage> compile(CompileRequest const& request, WorkerWatch* watch = nullptr);
    Result<CompiledImage> compile_in_process(CompileRequest const& request);
    Result<CompiledImage> compile_in_worker(std::string const& worker, CompileRequest const& request, WorkerWatch* watch = nullptr);
    // Nothing where XQAJIT_WORKER is unset and no worker is installed: this process is to compile, with one warning.
    Result<std::optional<std::string>> worker_to_use();

private:
    Settings const& settings_;
    std::mutex mutex_;
    std::optional<NvrtcIdentity> identity_;
    std::shared_ptr<NvrtcLibrary const> library_;
    std::atomic<bool> warned_{false};
};

}  // namespace xqajit
