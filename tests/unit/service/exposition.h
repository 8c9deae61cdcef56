// Prometheus' text exposition format, version 0.0.4, as strictly as its documentation and promtool's lint have it.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace xqajit::testing {

struct Exposition {
    std::vector<std::string> faults;           // each names its line; empty: the text is valid
    std::map<std::string, double> samples;     // by name with its labels as written
    std::map<std::string, std::string> types;  // by metric name
};

Exposition parse_exposition(std::string const& text);

}  // namespace xqajit::testing
