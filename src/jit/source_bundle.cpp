#include "jit/source_bundle.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "jit/embedded_sources.h"

namespace xqajit {

namespace {

Source const* find_in(std::span<Source const> sources, std::string_view name) {
    auto const found = std::find_if(sources.begin(), sources.end(), [&](Source const& source) { return source.name == name; });
    return found == sources.end() ? nullptr : &*found;
}

std::string_view skip_blanks(std::string_view text) {
    auto const first = text.find_first_not_of(" \t");
    return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// The name in `#include "name"`; empty for any other line.
std::string_view included_name(std::string_view line) {
    line = skip_blanks(line);
    if (!line.starts_with('#')) return {};
    line = skip_blanks(line.substr(1));
    if (!line.starts_with("include")) return {};
    line = skip_blanks(line.substr(7));
    if (!line.starts_with('"')) return {};
    line.remove_prefix(1);
    return line.substr(0, line.find('"'));
}

struct FamilySources {
    std::vector<Source> closure;
    Digest digest;
};

FamilySources const& family_sources(Family family) {
    static auto const table = [] {
        std::array<FamilySources, std::size(kFamilies)> sources;
        for (Family const each : kFamilies) {
            auto& entry = sources[static_cast<std::size_t>(each)];
            entry.closure = closure_of(embedded_sources(), std::string(family_name(each)) + "/kernel.cu");
            entry.digest = digest_of_sources(entry.closure);
        }
        return sources;
    }();
    return table[static_cast<std::size_t>(family)];
}

}  // namespace

std::vector<Source> closure_of(std::span<Source const> sources, std::string_view entry) {
    Source const* const root = find_in(sources, entry);
    if (!root) return {};
    std::vector<Source> closure{*root};
    std::set<std::string_view> seen{entry};
    for (std::size_t next = 0; next < closure.size(); ++next) {
        std::string_view rest = closure[next].text;
        while (!rest.empty()) {
            auto const end = std::min(rest.find('\n'), rest.size() - 1);
            std::string_view const name = included_name(rest.substr(0, end + 1));
            rest.remove_prefix(end + 1);
            Source const* const source = name.empty() ? nullptr : find_in(sources, name);
            if (source && seen.insert(source->name).second) closure.push_back(*source);
        }
    }
    std::sort(closure.begin() + 1, closure.end(), [](Source const& a, Source const& b) { return a.name < b.name; });
    return closure;
}

Digest digest_of_sources(std::span<Source const> closure) {
    TaggedHash hash;
    for (Source const& source : closure) {
        hash.add("name", source.name);
        hash.add("text", source.text);
    }
    return hash.digest();
}

bool family_has_kernel(Family family) { return !source_closure(family).empty(); }
std::vector<Source> const& source_closure(Family family) { return family_sources(family).closure; }
Digest source_digest(Family family) { return family_sources(family).digest; }

}  // namespace xqajit
