// A child process with its standard input, output and error captured: posix_spawn, no shell.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"

namespace xqajit {

struct ProcessResult {
    enum class End { kExited, kSignalled, kTimedOut, kStopped, kUnknown };  // kUnknown: the host reaped it (SIGCHLD ignored)
    End end = End::kUnknown;
    int code = 0;  // exit status or signal
    std::string out;
    std::string err;
    std::string describe() const;  // "killed by SIGSEGV (11)"
};

bool is_set(int const* stop);  // read atomically; null is not set

// argv[0] is an absolute path. `environment`: null inherits. Fails only if the child could not be started.
// The child is killed at the deadline. Works whatever the host does with SIGCHLD.
// `stop`: the child is killed within a moment of its being set. Such a child has a process group of its
// own, so that Ctrl-C on a terminal reaches the caller alone, who decides.
Result<ProcessResult> run_process(std::vector<std::string> const& argv, std::string const& input, std::chrono::milliseconds timeout,
                                  std::vector<std::string> const* environment = nullptr, int const* stop = nullptr);

}  // namespace xqajit
