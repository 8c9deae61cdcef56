#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/oom_kills.h"
#include "base/subprocess.h"
#include "jit/own_path.h"
#include "jit/worker_protocol.h"

namespace xqajit {

namespace {

constexpr std::size_t kMaxRequestBytes = 16u << 20;
constexpr std::size_t kMaxErrorTail = 4096;  // of the worker's standard error, kept as evidence

bool read_all(int fd, std::string& text) {
    char buffer[1 << 16];
    for (;;) {
        ssize_t const got = read(fd, buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 || text.size() > kMaxRequestBytes) return false;
        if (got == 0) return true;
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

Result<CompiledImage> serve(std::string const& text) {
    auto const request = decode_request(text);
    if (!request) return Status(XQAJIT_INTERNAL, "the compile worker was sent a request that it can't read");
    auto const nvrtc = NvrtcLibrary::open(request->nvrtc);
    if (!nvrtc.ok()) return nvrtc.status();
    return run_job(**nvrtc, request->job);
}

std::string seconds(std::chrono::milliseconds time) {
    std::string text = std::to_string(time.count() / 1000);
    if (auto const rest = time.count() % 1000) text += "." + std::to_string(rest + 1000).substr(1);
    return text + " s";
}

bool nobody_reads(int fd) {
    pollfd polled{fd, 0, 0};
    return poll(&polled, 1, 0) == 1 && (polled.revents & POLLERR) != 0;
}

// Where memory runs out a compile can be tried again, and what else runs on the machine perhaps cannot.
void be_first_to_go() {
    UniqueFd const score(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (score.valid()) write_all(score.get(), "1000");
}

// "" if it is one that run_process() takes.
std::string why_not_executable(std::string const& path) {
    struct stat facts {};
    if (!path.starts_with('/')) return "it is a relative path";
    if (stat(path.c_str(), &facts) != 0) return errno_text(errno);
    if (!S_ISREG(facts.st_mode)) return "it is not a regular file";
    return access(path.c_str(), X_OK) == 0 ? "" : errno_text(errno);
}

}  // namespace

Status worker_failure(std::string const& worker, ProcessResult const& process, CompileJob const& job,
                      std::chrono::milliseconds timeout, bool oom_killed) {
    std::string const tail = process.err.substr(process.err.size() - std::min(process.err.size(), kMaxErrorTail));
    std::string const detail = "macros: " + job.macros.to_string() + "\nworker's standard error:\n" + tail;
    std::string const on = " on " + job.name + " (" + process.describe() + ")";
    using End = ProcessResult::End;
    if (process.end == End::kStopped) return {XQAJIT_INTERRUPTED, "the compiler was stopped" + on};
    if (process.end == End::kTimedOut)
        return {XQAJIT_COMPILE_FAILED, "the compiler did not finish " + job.name + " within " + seconds(timeout), detail};
    bool const killed = process.end == End::kSignalled && process.code == SIGKILL;
    if ((killed && oom_killed) || tail.find("bad_alloc") != std::string::npos)
        return {XQAJIT_OUT_OF_MEMORY, "the compiler ran out of memory" + on, detail};
    if (killed)
        return {XQAJIT_COMPILE_FAILED,
                "the compiler was killed" + on + ": by somebody, or by the kernel for lack of memory, which it does not tell",
                detail};
    if (process.end == End::kSignalled) return {XQAJIT_COMPILE_FAILED, "the compiler crashed" + on, detail};
    return {XQAJIT_COMPILE_FAILED, "the compile worker " + worker + " ended without a result" + on, detail};
}

Result<std::string> find_worker(Settings const& settings) {
    auto const& setting = settings.get(SettingId::kWorker);
    if (setting.is_set) {
        std::string const why = why_not_executable(setting.text);
        if (why.empty()) return setting.text;
        return invalid_argument("XQAJIT_WORKER is '" + setting.text + "': " + why +
                                "; accepted is the absolute path of the compile worker's executable");
    }
    std::string const own = own_directory();
    // The second is for a library folder with one more level, as Debian's lib/x86_64-linux-gnu.
    std::string looked_at;
    for (char const* up : {"/..", "/../.."}) {
        std::string const path = own + up + "/libexec/xqajit/xqajit-worker";
        std::string const why = why_not_executable(path);
        if (why.empty()) return path;
        looked_at += (looked_at.empty() ? "" : ", ") + path + " (" + why + ")";
    }
    return unavailable("compile worker not found: looked for " + looked_at + "; XQAJIT_WORKER names another place");
}

Result<CompiledImage> run_job_in_worker(std::string const& worker, NvrtcIdentity const& nvrtc, CompileJob const& job,
                                        std::chrono::milliseconds timeout, WorkerWatch* watch) {
    std::uint64_t const oom_kills_before = oom_kills();
    auto const process =
        run_process({worker}, encode_request({nvrtc, job}), timeout, nullptr, watch != nullptr ? watch->stop : nullptr);
    if (!process.ok()) return process.status();
    // A whole result counts even where the host has reaped the worker and its exit status is lost.
    if (auto result = decode_result(process->out)) return std::move(*result);
    using End = ProcessResult::End;
    if (watch != nullptr)
        watch->killed = (process->end == End::kSignalled && process->code == SIGKILL) || process->end == End::kUnknown;
    return worker_failure(worker, *process, job, timeout, oom_kills() > oom_kills_before);
}

int worker_main() {
    if (isatty(STDIN_FILENO)) {
        constexpr std::string_view usage =
            "xqajit-worker is started by the xqajit library; it reads one compile request from standard input\n";
        write_all(STDERR_FILENO, usage);
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);           // no compile outlives the process that wants it
    if (nobody_reads(STDOUT_FILENO)) return 1;  // which may have ended before it could
    be_first_to_go();
    rlimit const none{0, 0};
    setrlimit(RLIMIT_CORE, &none);  // a crash is reported in words
    int const out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;  // whatever the compiler prints must not mix with the result
    std::string request;
    if (!read_all(STDIN_FILENO, request)) return 1;
    return write_all(out, encode_result(serve(request))) ? 0 : 1;
}

}  // namespace xqajit
