#include "jit/compiler.h"

#include <algorithm>
#include <charconv>
#include <new>

#include "base/log.h"
#include "jit/compile_job.h"
#include "jit/nvrtc_functions.h"
#include "jit/ptxas_log.h"

namespace xqajit {

namespace {

class Program {
public:
    explicit Program(NvrtcLibrary::Functions const& functions) : functions_(functions) {}
    Program(Program const&) = delete;
    Program& operator=(Program const&) = delete;
    ~Program() {
        if (program_) functions_.destroy_program(&program_);
    }

    nvrtcResult create(std::vector<Source> const& sources) {
        // NVRTC takes zero-terminated texts; the views of a job need not end in one.
        std::vector<std::string> texts, names;
        for (Source const& source : sources) {
            texts.emplace_back(source.text);
            names.emplace_back(source.name);
        }
        std::vector<char const*> headers, include_names;
        for (std::size_t i = 1; i < sources.size(); ++i) {
            headers.push_back(texts[i].c_str());
            include_names.push_back(names[i].c_str());
        }
        return functions_.create_program(&program_, texts[0].c_str(), names[0].c_str(), static_cast<int>(headers.size()),
                                         headers.data(), include_names.data());
    }

    nvrtcResult compile(std::vector<std::string> const& options) {
        std::vector<char const*> pointers;
        for (auto const& option : options) pointers.push_back(option.c_str());
        return functions_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
    }

    std::string log() const {
        std::string text;
        std::size_t size = 0;
        if (functions_.get_program_log_size(program_, &size) != NVRTC_SUCCESS || size <= 1) return text;
        text.resize(size);  // the terminating zero included
        if (functions_.get_program_log(program_, text.data()) != NVRTC_SUCCESS) return {};
        text.erase(std::min(text.find('\0'), text.size()));
        return text;
    }

    nvrtcResult image(bool ptx, std::string& bytes) const {
        std::size_t size = 0;
        auto const get_size = ptx ? functions_.get_ptx_size : functions_.get_cubin_size;
        if (nvrtcResult const result = get_size(program_, &size); result != NVRTC_SUCCESS) return result;
        bytes.resize(size);
        return (ptx ? functions_.get_ptx : functions_.get_cubin)(program_, bytes.data());
    }

private:
    NvrtcLibrary::Functions const& functions_;
    nvrtcProgram program_ = nullptr;
};

int arch_number(std::string const& target) {
    int number = 0;
    std::size_t const at = target.find('_');
    if (at != std::string::npos) std::from_chars(target.data() + at + 1, target.data() + target.size(), number);
    return number;
}

// Of a target whose number is known and whose suffix is not.
bool blames_target(std::string const& log) {
    return log.find("--gpu-architecture") != std::string::npos || log.find("--nv_arch") != std::string::npos;
}

// Family targets came with 12.9.
bool needs_later(NvrtcLibrary const& nvrtc, std::string const& target) { return target.ends_with('f') && !nvrtc.at_least(12, 9); }

Status unknown_target(NvrtcLibrary const& nvrtc, std::string const& target) {
    std::string known;
    for (int arch : nvrtc.supported_archs()) known += (known.empty() ? "" : ", ") + std::to_string(arch);
    return unsupported("target " + target + " is unknown to NVRTC " + nvrtc.version() + ": it knows " + known +
                       (needs_later(nvrtc, target) ? "; targets with the suffix f need 12.9" : ""));
}

Status failure(NvrtcLibrary const& nvrtc, CompileJob const& job, nvrtcResult result, std::string const& log) {
    std::string const line = first_error_line(log);
    std::string const why = line.empty() ? nvrtc.functions().get_error_string(result) : line;
    bool const memory = result == NVRTC_ERROR_OUT_OF_MEMORY;
    return {memory ? XQAJIT_OUT_OF_MEMORY : XQAJIT_COMPILE_FAILED,
            memory ? "the compiler ran out of memory on " + job.name : "compiling " + job.name + " failed: " + why,
            "NVRTC " + nvrtc.version() + ", " + nvrtc.functions().get_error_string(result) + "\nmacros: " + job.macros.to_string() +
                "\n" + log};
}

std::vector<std::string> all_options(NvrtcLibrary const& nvrtc, CompileJob const& job) {
    std::vector<std::string> options = job.options;
    for (auto const& [name, value] : job.macros.macros) options.push_back("-D" + name + "=" + value);
    options.push_back("--ptxas-options=-v");                      // resource usage in the log; no change to the code
    if (nvrtc.knows_no_cache()) options.push_back("--no-cache");  // its own disk cache would be a second one, outside our checks
    return options;
}

Result<CompiledImage> run_job_or_throw(NvrtcLibrary const& nvrtc, CompileJob const& job) {
    XQAJIT_RETURN_IF_ERROR(check_target(nvrtc, job.target));
    auto const begin = std::chrono::steady_clock::now();
    Program program(nvrtc.functions());
    if (nvrtcResult const result = program.create(job.sources); result != NVRTC_SUCCESS) return failure(nvrtc, job, result, "");
    nvrtcResult result = program.compile(all_options(nvrtc, job));

    CompiledImage compiled;
    compiled.log = program.log();
    if (result != NVRTC_SUCCESS && blames_target(compiled.log)) return unknown_target(nvrtc, job.target);
    compiled.is_ptx = job.target.starts_with("compute_");
    if (result == NVRTC_SUCCESS) result = program.image(compiled.is_ptx, compiled.image);
    if (result != NVRTC_SUCCESS) return failure(nvrtc, job, result, compiled.log);

    PtxasUsage const usage = usage_in(compiled.log, kEntryName);
    compiled.registers = usage.registers;
    compiled.spill_bytes = usage.spill_bytes;
    compiled.stack_bytes = usage.stack_bytes;
    compiled.static_smem = usage.static_smem;
    compiled.nvrtc_version = nvrtc.version();
    compiled.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return compiled;
}

void log_chatter(CompileJob const& job, Result<CompiledImage> const& result) {
    if (result.ok() && !result->log.empty() && log::enabled(log::Level::kDebug))
        log::debug("compile log of " + job.name + ":\n" + result->log);
}

}  // namespace

CompileJob job_for(CompileRequest const& request) {
    return {std::string(family_name(request.family)) + " " + request.target, request.target, keyed_options(request.target),
            request.macros, source_closure(request.family)};
}

Status check_target(NvrtcLibrary const& nvrtc, std::string const& target) {
    auto const& known = nvrtc.supported_archs();
    bool const known_number = std::find(known.begin(), known.end(), arch_number(target)) != known.end();
    return known_number && !needs_later(nvrtc, target) ? Status() : unknown_target(nvrtc, target);
}

Result<CompiledImage> run_job(NvrtcLibrary const& nvrtc, CompileJob const& job) {
    if (job.sources.empty()) return unsupported(job.name + " has no kernel source");
    try {
        return run_job_or_throw(nvrtc, job);
    } catch (std::bad_alloc const&) {
        return Status(XQAJIT_OUT_OF_MEMORY, "the compiler ran out of memory on " + job.name);
    }
}

Result<CompiledImage> compile(NvrtcLibrary const& nvrtc, CompileRequest const& request) {
    CompileJob const job = job_for(request);
    auto result = run_job(nvrtc, job);
    log_chatter(job, result);
    return result;
}

Result<CompiledImage> compile_in_worker(std::string const& worker, NvrtcIdentity const& nvrtc, CompileRequest const& request,
                                        std::chrono::milliseconds timeout, WorkerWatch* watch) {
    CompileJob const job = job_for(request);
    auto result = run_job_in_worker(worker, nvrtc, job, timeout, watch);
    log_chatter(job, result);
    return result;
}

}  // namespace xqajit
