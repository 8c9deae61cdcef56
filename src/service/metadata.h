// What a disk entry says about its image.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "jit/compiler.h"

namespace xqajit {

// JSON: family, target, macros, key_format, options and sources (a digest), which are all that the key's body is made of; nvrtc_version, compile_ms, registers, spill_bytes, stack_bytes, static_smem, created (ISO-8601, UTC).
std::string metadata_of(CompileRequest const& request, CompiledImage const& compiled);
std::string nvrtc_version_of(std::string const& metadata);  // "13.0", or "unknown"
// Of an entry, which may come from elsewhere: null unless it is an object, of a few levels. Deeper ones would exhaust the stack of whatever
// copies or prints them.
nlohmann::ordered_json parse_metadata(std::string const& metadata);

}  // namespace xqajit
