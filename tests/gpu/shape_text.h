// A shape as text: for shape lists and for lines that reproduce a failure.
#pragma once

#include <string>

#include "xqajit/xqajit.h"

namespace xqajit::testing {

// One object with the shape list's keys; fields that are 0 are left out.
std::string shape_json(xqajit_params const& params);

}  // namespace xqajit::testing
