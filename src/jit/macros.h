// KernelSpec -> the -D macros of one compile. The only table of them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "select/kernel_spec.h"

namespace xqajit {

struct MacroSet {
    std::vector<std::pair<std::string, std::string>> macros; // sorted by name
    std::string to_string() const;                           // "-DBEAM_WIDTH=1 -D..."
    std::string to_json() const;
};

MacroSet macros_for(KernelSpec const& spec);

} // namespace xqajit
