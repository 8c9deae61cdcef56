// Shared by the formulas, the plan and its workspace.
#pragma once

#include <cstdint>

namespace xqajit {

// Without the sum that would overflow near 2^64.
constexpr std::uint64_t ceil_div(std::uint64_t value, std::uint64_t divisor) {
    return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace xqajit
