#include "jit/ptxas_log.h"

#include <algorithm>
#include <charconv>

namespace xqajit {

namespace {

std::string_view next_line(std::string_view& rest) {
    std::size_t const end = std::min(rest.find('\n'), rest.size());
    std::string_view const line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return line;
}

// The number before `words`, as in "128 bytes smem"; 0 if the line has no such words.
std::uint32_t number_before(std::string_view line, std::string_view words) {
    std::size_t const at = line.find(words);
    if (at == std::string_view::npos) return 0;
    std::size_t begin = at;
    while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
    std::uint32_t number = 0;
    std::from_chars(line.data() + begin, line.data() + at, number);
    return number;
}

}  // namespace

PtxasUsage usage_in(std::string_view log, std::string_view entry) {
    PtxasUsage usage;
    std::string const quoted = "'" + std::string(entry) + "'";
    bool in_entry = false;
    while (!log.empty()) {
        std::string_view const line = next_line(log);
        if (line.find("Compiling entry function") != std::string_view::npos) in_entry = line.find(quoted) != std::string_view::npos;
        if (!in_entry) continue;
        if (line.find(" bytes spill stores") != std::string_view::npos) {
            usage.stack_bytes = number_before(line, " bytes stack frame");
            usage.spill_bytes = number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        } else if (line.find("Used ") != std::string_view::npos) {
            usage.registers = number_before(line, " registers");
            usage.static_smem = number_before(line, " bytes smem");
            break;  // what follows is of functions that are not inlined
        }
    }
    return usage;
}

std::string first_error_line(std::string_view log) {
    std::string_view first;
    while (!log.empty()) {
        std::string_view const line = next_line(log);
        for (std::string_view mark : {"error:", "error   :", "fatal   :"})
            if (line.find(mark) != std::string_view::npos) return std::string(line);
        if (first.empty()) first = line;
    }
    return std::string(first);
}

}  // namespace xqajit
