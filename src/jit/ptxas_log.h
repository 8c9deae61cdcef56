// What the assembler says of a kernel (--ptxas-options=-v), read from the compile log.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xqajit {

struct PtxasUsage {
    std::uint32_t registers = 0;    // a thread
    std::uint32_t spill_bytes = 0;  // stores and loads
    std::uint32_t stack_bytes = 0;  // a thread
    std::uint32_t static_smem = 0;  // bytes a block
};

// Of the entry function `entry`; zeros where the log says nothing of it.
PtxasUsage usage_in(std::string_view log, std::string_view entry);

// The first line that reports an error; the first line that is not empty if none does.
std::string first_error_line(std::string_view log);

}  // namespace xqajit
