// How much memory this process and its children may still take, so that nobody starts more compilers than fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace xqajit {

// The least of what the machine has available and of what is left below the limits of this process's control group and of those above it,
// of both versions; what such a group holds of files that it can drop counts as left. Nothing where none of these is told. `root` stands
// before /proc and /sys.
std::optional<std::uint64_t> available_memory(std::string const& root = "");

}  // namespace xqajit
