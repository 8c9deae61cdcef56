// What cmake/embed_sources.cmake generates.
#pragma once

#include "jit/source_bundle.h"

namespace xqajit {

std::span<Source const> embedded_sources();  // sorted by name

}  // namespace xqajit
