// Lists in a text: settings, search paths, lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xqajit {

// The parts between the separators (any one of these characters), without the blanks around them; empty parts are dropped.
std::vector<std::string> split(std::string_view text, std::string_view separators);

}  // namespace xqajit
