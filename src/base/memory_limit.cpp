#include "base/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/file.h"

namespace xqajit {
namespace {

constexpr std::uint64_t kMaxBytes = 1 << 20;

std::string text_of(std::string const& path) {
    Result<std::string> text = read_file(path, kMaxBytes);
    return text.ok() ? std::move(text).value() : std::string();
}

// "max" is no number, and no limit.
std::optional<std::uint64_t> number_in(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    std::uint64_t number = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Calls take(line) for each line.
template <class Take> void each_line(std::string_view text, Take const& take) {
    while (!text.empty()) {
        std::string_view const line = text.substr(0, text.find('\n'));
        take(line);
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
}

std::optional<std::uint64_t> number_after(std::string_view text, std::string_view name) {
    std::optional<std::uint64_t> number;
    each_line(text, [&](std::string_view line) {
        if (!number && line.starts_with(name)) number = number_in(line.substr(name.size()));
    });
    return number;
}

// The names of the same things in each version of control groups.
struct Version {
    char const* hierarchy;
    char const* limit;
    char const* throttle;  // past it the kernel makes everything crawl
    char const* usage;
    char const* droppable;  // in memory.stat
};
constexpr Version kFirst = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes",
                            "total_inactive_file "};
constexpr Version kSecond = {"/sys/fs/cgroup", "/memory.max", "/memory.high", "/memory.current", "inactive_file "};

class Least {
public:
    void add(std::optional<std::uint64_t> bytes) {
        if (bytes && (!least_ || *bytes < *least_)) least_ = bytes;
    }
    std::optional<std::uint64_t> value() const { return least_; }

private:
    std::optional<std::uint64_t> least_;
};

std::optional<std::uint64_t> left_in(std::string const& directory, Version const& version) {
    Least limit;
    limit.add(number_in(text_of(directory + version.limit)));
    if (version.throttle != nullptr) limit.add(number_in(text_of(directory + version.throttle)));
    if (!limit.value()) return {};
    std::uint64_t const used = number_in(text_of(directory + version.usage)).value_or(0);
    std::uint64_t const droppable = number_after(text_of(directory + "/memory.stat"), version.droppable).value_or(0);
    std::uint64_t const held = used - std::min(used, droppable);
    return *limit.value() - std::min(*limit.value(), held);
}

// In a container the hierarchy's top is the container's group, whatever path the host has for it: folders that are missing are passed over.
void add_groups(Least& least, std::string const& root, std::string group, Version const& version) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    for (;; group.resize(group.rfind('/'))) {
        least.add(left_in(root + version.hierarchy + group, version));
        if (group.find('/') == std::string::npos) return;
    }
}

}  // namespace

std::optional<std::uint64_t> available_memory(std::string const& root) {
    Least least;
    if (auto const kibibytes = number_after(text_of(root + "/proc/meminfo"), "MemAvailable:")) least.add(*kibibytes * 1024);
    each_line(text_of(root + "/proc/self/cgroup"), [&](std::string_view line) {  // "4:cpu,memory:/a/b", of version 2 "0::/a/b"
        std::size_t const first = line.find(':');
        std::size_t const second = line.find(':', first + 1);
        if (first == std::string_view::npos || second == std::string_view::npos) return;
        std::string const group(line.substr(second + 1));
        std::string const controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
        if (controllers == ",,") add_groups(least, root, group, kSecond);
        if (controllers.find(",memory,") != std::string::npos) add_groups(least, root, group, kFirst);
    });
    return least.value();
}

}  // namespace xqajit
