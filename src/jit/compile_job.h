// A compile with everything spelled out: what the worker process is given, so that it compiles exactly what the key says, whatever
// sources it was itself built with.
#pragma once

#include "base/subprocess.h"
#include "jit/compiler.h"

namespace xqajit {

struct CompileJob {
    std::string name;    // "mmha sm_90a": for messages
    std::string target;  // "sm_90a"
    std::vector<std::string> options;
    MacroSet macros;
    std::vector<Source> sources;  // the entry file first; views of texts that the caller keeps
};

CompileJob job_for(CompileRequest const& request);  // views of the embedded sources

// As compile() and compile_in_worker(), which are these on job_for().
Result<CompiledImage> run_job(NvrtcLibrary const& nvrtc, CompileJob const& job);
Result<CompiledImage> run_job_in_worker(std::string const& worker, NvrtcIdentity const& nvrtc, CompileJob const& job,
                                        std::chrono::milliseconds timeout, WorkerWatch* watch = nullptr);

// Why a worker process gave no result. OUT_OF_MEMORY needs evidence: the compiler's own word, or an oom_killed that says that the kernel
// ended a process for lack of memory meanwhile.
Status worker_failure(std::string const& worker, ProcessResult const& process, CompileJob const& job,
                      std::chrono::milliseconds timeout, bool oom_killed);

}  // namespace xqajit
