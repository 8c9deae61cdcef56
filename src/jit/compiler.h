// One compile: KernelSpec in, image out; in this process or in a worker process.
#pragma once

#include <chrono>
#include <string>

#include "jit/macros.h"
#include "jit/nvrtc_library.h"
#include "jit/source_bundle.h"

namespace xqajit {

struct CompileRequest {
    Family family = Family::kMmha;
    std::string target;  // "sm_90a"; "compute_80" makes PTX
    MacroSet macros;
};

struct CompiledImage {
    std::string image;  // cubin, or PTX with its terminating zero
    bool is_ptx = false;
    std::string log;  // NVRTC's, ptxas resource lines included
    double compile_ms = 0;
    std::string nvrtc_version;                                                       // "13.0"
    std::uint32_t registers = 0, spill_bytes = 0, stack_bytes = 0, static_smem = 0;  // of the entry function; 0 with PTX
};

// The options of a compile that are part of the key: all but --no-cache and the -D list.
std::vector<std::string> keyed_options(std::string const& target);
CacheKey key_for(CompileRequest const& request, Digest const& compiler);  // pure
std::string key_text(CompileRequest const& request);                      // the hashed fields, for people
inline constexpr char kKeyFormat[] = "1";  // raised when the meaning of a hashed field changes, or the way an image is made of them

// Whether this NVRTC knows the target, as far as that can be told before a compile: UNSUPPORTED names both and lists the known ones.
Status check_target(NvrtcLibrary const& nvrtc, std::string const& target);

// In this process. Thread-safe. COMPILE_FAILED carries the first error line as message; log and macros as detail. UNSUPPORTED
// as check_target().
Result<CompiledImage> compile(NvrtcLibrary const& nvrtc, CompileRequest const& request);

// Of one compile in a worker process, besides its result.
struct WorkerWatch {
    int const* stop = nullptr;  // as run_process()'s: the compile is then INTERRUPTED
    bool killed = false;        // out: it gave no result because somebody or something killed it, as far as can be told
};

// In a worker process: a crash, a kill or a time-out is COMPILE_FAILED and memory that is known to have run out is OUT_OF_MEMORY, for
// this request alone. The sources travel with the request, so a worker of another build compiles what the key says. Thread-safe.
// find_worker: XQAJIT_WORKER, INVALID_ARGUMENT if it names no executable; else libexec/xqajit/xqajit-worker beside the library's folder
// or one above, UNAVAILABLE if there is none.
Result<std::string> find_worker(Settings const& settings);
Result<CompiledImage> compile_in_worker(std::string const& worker, NvrtcIdentity const& nvrtc, CompileRequest const& request,
                                        std::chrono::milliseconds timeout, WorkerWatch* watch = nullptr);
int worker_main();  // reads one request from standard input, writes one result to standard output; the worker's whole main()

}  // namespace xqajit
