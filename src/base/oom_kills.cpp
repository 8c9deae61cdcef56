#include "base/oom_kills.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/file.h"

namespace xqajit {
namespace {

constexpr std::uint64_t kMaxBytes = 1 << 20;

// What follows `prefix` on the line that starts with it; "" if none does.
std::string_view after(std::string_view text, std::string_view prefix) {
    while (!text.empty()) {
        std::string_view const line = text.substr(0, text.find('\n'));
        if (line.starts_with(prefix)) return line.substr(prefix.size());
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return {};
}

}  // namespace

std::uint64_t oom_kills(std::string const& root) {
    Result<std::string> const groups = read_file(root + "/proc/self/cgroup", kMaxBytes);
    std::string const group(groups.ok() ? after(*groups, "0::") : std::string_view());
    Result<std::string> counters = read_file(root + "/sys/fs/cgroup" + group + "/memory.events", kMaxBytes);
    if (!counters.ok()) counters = read_file(root + "/proc/vmstat", kMaxBytes);
    if (!counters.ok()) return 0;
    std::string_view const digits = after(*counters, "oom_kill ");
    std::uint64_t count = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), count);
    return count;
}

}  // namespace xqajit
