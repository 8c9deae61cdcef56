// The device sources, embedded at build time.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "select/kernel_spec.h"

namespace xqajit {

struct Source {
    std::string_view name; // "mmha/kernel.cu": path below kernel_src, as the include directives write it
    std::string_view text;
};

std::span<Source const> all_sources();                        // sorted by name
Source const* find_source(std::string_view name);
bool family_has_kernel(Family family);                        // its kernel.cu is embedded
std::vector<Source> source_closure(Family family);            // kernel.cu and what it includes, directly or not; kernel.cu first
Digest source_digest(Family family);                          // of names and texts of the closure

} // namespace xqajit
