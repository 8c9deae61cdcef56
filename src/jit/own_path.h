// Where this library lies: its companions are found relative to it.
#pragma once

#include <string>

namespace xqajit {

// Directory of the shared library (or of the executable) that holds this code, absolute and resolved. "" if /proc is not there.
std::string own_directory();

}  // namespace xqajit
