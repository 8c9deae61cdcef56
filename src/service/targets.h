// Which architecture a call compiles for: the argument, else XQAJIT_ARCH, else the device's own.
#pragma once

#include <string>
#include <vector>

#include "base/settings.h"
#include "driver/context.h"
#include "select/arch.h"

namespace xqajit {

struct Target {
    ArchFacts arch;
    std::string origin;  // "argument", "XQAJIT_ARCH", "current context", "GPU 0"
};

// For a launch in this context: the first name in XQAJIT_ARCH whose image runs on its device, with the device's own SM count and shared
// memory. INVALID_ARGUMENT gives the reason for each name if none does.
Result<Target> target_for_context(Settings const& settings, driver::ContextInfo const& context);
// For a document. name: null or empty takes XQAJIT_ARCH (its first usable name where a context is current), else the current context's
// arch, else the first GPU's. UNAVAILABLE where none of them gives one.
Result<Target> target_for_document(Settings const& settings, char const* name);
// For a prewarm. names: comma-separated; null or empty takes all of XQAJIT_ARCH, else the distinct archs of the present GPUs.
Result<std::vector<Target>> targets_for_prewarm(Settings const& settings, char const* names);
// INVALID_ARGUMENT if a word of XQAJIT_ARCH is not written as an architecture's name.
Status check_arch_setting(Settings const& settings);
// A warning for each name in XQAJIT_ARCH that nothing can be compiled for.
std::vector<std::string> arch_setting_warnings(Settings const& settings);

}  // namespace xqajit
