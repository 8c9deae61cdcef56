#include "service/toolchain.h"

#include "base/log.h"

namespace xqajit {

Result<NvrtcIdentity> Toolchain::identity() {
    std::lock_guard const lock(mutex_);
    if (!identity_) {
        Result<NvrtcIdentity> found = find_nvrtc(settings_);
        if (!found.ok()) return found.status();
        identity_ = *found;
    }
    return *identity_;
}

Result<std::shared_ptr<NvrtcLibrary const>> Toolchain::library() {
    Result<NvrtcIdentity> const found = identity();
    if (!found.ok()) return found.status();
    std::lock_guard const lock(mutex_);
    if (library_ == nullptr) {
        Result<std::shared_ptr<NvrtcLibrary const>> opened = NvrtcLibrary::open(*found);
        if (!opened.ok()) return opened.status();
        library_ = *opened;
    }
    return library_;
}

Status Toolchain::can_compile(std::string const& target) {
    if (settings_.text(SettingId::kCompile) == "worker") {
        Status const worker = find_worker(settings_).status();
        if (!worker.ok() && worker.code() != XQAJIT_UNAVAILABLE) return worker;
    }
    Result<std::shared_ptr<NvrtcLibrary const>> const nvrtc = library();
    return nvrtc.ok() ? check_target(**nvrtc, target) : nvrtc.status();
}

Result<CompiledImage> Toolchain::compile(CompileRequest const& request, WorkerWatch* watch) {
    if (settings_.text(SettingId::kCompile) != "worker") return compile_in_process(request);
    Result<std::optional<std::string>> const worker = worker_to_use();
    if (!worker.ok()) return worker.status();
    return *worker ? compile_in_worker(**worker, request, watch) : compile_in_process(request);
}

Result<CompiledImage> Toolchain::compile_in_process(CompileRequest const& request) {
    Result<std::shared_ptr<NvrtcLibrary const>> const nvrtc = library();
    if (!nvrtc.ok()) return nvrtc.status();
    return xqajit::compile(**nvrtc, request);
}

Result<CompiledImage> Toolchain::compile_in_worker(std::string const& worker, CompileRequest const& request, WorkerWatch* watch) {
    Result<NvrtcIdentity> const nvrtc = identity();
    if (!nvrtc.ok()) return nvrtc.status();
    return xqajit::compile_in_worker(worker, *nvrtc, request, std::chrono::seconds(settings_.integer(SettingId::kCompileTimeout)),
                                     watch);
}

Result<std::optional<std::string>> Toolchain::worker_to_use() {
    Result<std::string> const found = find_worker(settings_);
    if (found.ok()) return std::optional(*found);
    if (found.status().code() != XQAJIT_UNAVAILABLE) return found.status();
    if (!warned_.exchange(true)) log::warning("compiling in this process: " + found.status().message());
    return std::optional<std::string>();
}

}  // namespace xqajit
