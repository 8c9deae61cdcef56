#include "service/metadata.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace xqajit {
namespace {

std::string utc_now() {
    std::time_t const now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32] = "";
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace

std::string metadata_of(CompileRequest const& request, CompiledImage const& compiled) {
    nlohmann::ordered_json macros = nlohmann::ordered_json::object();
    for (auto const& [name, value] : request.macros.macros) macros[name] = value;
    nlohmann::ordered_json const metadata = {
        {"family", family_name(request.family)},
        {"target", request.target},
        {"macros", std::move(macros)},
        {"key_format", kKeyFormat},
        {"options", keyed_options(request.target)},
        {"sources", source_digest(request.family).hex()},
        {"nvrtc_version", compiled.nvrtc_version},
        {"compile_ms", compiled.compile_ms},
        {"registers", compiled.registers},
        {"spill_bytes", compiled.spill_bytes},
        {"stack_bytes", compiled.stack_bytes},
        {"static_smem", compiled.static_smem},
        {"created", utc_now()},
    };
    return to_text(metadata);
}

nlohmann::ordered_json parse_metadata(std::string const& metadata) {
    using Json = nlohmann::ordered_json;
    constexpr int kMostLevels = 16;
    bool is_shallow = true;
    auto const keep = [&](int depth, Json::parse_event_t, Json const&) {
        is_shallow = is_shallow && depth < kMostLevels;
        return is_shallow;
    };
    Json json = Json::parse(metadata, keep, /*allow_exceptions=*/false);
    return is_shallow && json.is_object() ? json : Json(nullptr);
}

std::string nvrtc_version_of(std::string const& metadata) {
    nlohmann::ordered_json const object = parse_metadata(metadata);
    if (!object.is_object() || !object.contains("nvrtc_version") || !object["nvrtc_version"].is_string()) return "unknown";
    return object["nvrtc_version"].get<std::string>();
}

}  // namespace xqajit
