// The build-id of a shared library, read from the file: nothing is loaded or mapped.
#pragma once

#include <string>

#include "base/status.h"

namespace xqajit {

// The bytes of the GNU build-id note; empty if the library has none. UNAVAILABLE if the file can't be read or is no 64-bit shared
// library for this machine. Reads a few KiB, whatever the file claims.
Result<std::string> elf_build_id(std::string const& path);

}  // namespace xqajit
