#include "base/split.h"

#include <algorithm>

namespace xqajit {

std::vector<std::string> split(std::string_view text, std::string_view separators) {
    constexpr std::string_view kBlanks = " \t\r";
    std::vector<std::string> parts;
    while (!text.empty()) {
        std::size_t const end = std::min(text.find_first_of(separators), text.size());
        std::string_view const part = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        std::size_t const first = part.find_first_not_of(kBlanks);
        if (first == std::string_view::npos) continue;
        parts.emplace_back(part.substr(first, part.find_last_not_of(kBlanks) - first + 1));
    }
    return parts;
}

}  // namespace xqajit
