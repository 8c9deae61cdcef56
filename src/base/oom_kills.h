// What the kernel says of its out-of-memory killer: SIGKILL alone does not tell who sent it.
#pragma once

#include <cstdint>
#include <string>

namespace xqajit {

// Processes that the out-of-memory killer has ended so far: in this process's control group, or where there is none of version 2, on
// this machine; 0 where neither is told. `root` stands before /proc and /sys.
std::uint64_t oom_kills(std::string const& root = "");

}  // namespace xqajit
