// JSON as text, whatever bytes its strings hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace xqajit {

// Paths, settings and compilers' logs are bytes of any kind: what is no UTF-8 becomes U+FFFD, where dump() would throw and the whole
// document would be lost. indent: spaces a level; -1: one line.
std::string to_text(nlohmann::ordered_json const& json, int indent = -1);
// A string as it is, anything else as to_text().
std::string plain_text(nlohmann::ordered_json const& value);

}  // namespace xqajit
