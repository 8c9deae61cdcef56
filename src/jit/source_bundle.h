// The device sources, embedded at build time.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "select/kernel_spec.h"

namespace xqajit {

struct Source {
    std::string_view name;  // "mmha/kernel.cu": path below kernel_src, as the include directives write it
    std::string_view text;
};

// The entry function of every family's kernel.cu, extern "C".
inline constexpr char const* kEntryName = "xqajit_kernel";

bool family_has_kernel(Family family);                     // its kernel.cu is embedded
std::vector<Source> const& source_closure(Family family);  // kernel.cu and what it includes, directly or not; kernel.cu first
Digest source_digest(Family family);                       // of names and texts of the closure

// The same over any set of sources. `entry` first, then the included ones by name; empty if there is no `entry`.
std::vector<Source> closure_of(std::span<Source const> sources, std::string_view entry);
Digest digest_of_sources(std::span<Source const> closure);

}  // namespace xqajit
