#include "cache/metadata.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace xqajit::cache {
namespace {

std::string text_field(nlohmann::json const& object, char const* name) {
    auto const field = object.find(name);
    return field != object.end() && field->is_string() ? field->get<std::string>() : std::string();
}

std::array<unsigned, 3> parse_version(std::string const& text) {
    std::array<unsigned, 3> version{};
    char const* at = text.data();
    char const* const end = at + text.size();
    for (unsigned& part : version) {
        auto const [next, error] = std::from_chars(at, end, part);
        if (error != std::errc()) return {};
        if (next == end) return version;
        if (*next != '.') return {};
        at = next + 1;
    }
    return {};
}

}  // namespace

CompilerRank compiler_rank(std::string_view metadata) {
    nlohmann::json const object = nlohmann::json::parse(metadata, nullptr, /*allow_exceptions=*/false);
    if (!object.is_object()) return {};
    CompilerRank rank{parse_version(text_field(object, "nvrtc_version")), text_field(object, "created")};
    if (rank.created.ends_with('Z')) rank.created.pop_back();
    return rank;
}

}  // namespace xqajit::cache
