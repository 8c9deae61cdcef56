// xqajit doctor: what this machine offers, and every setting.
#include <nlohmann/json.hpp>

#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text(Json const& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string readable(Json const& document) {
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"xqajit", text(document["version"])});
    Json const& nvrtc = document["nvrtc"];
    if (nvrtc["found"].get<bool>()) {
        std::string archs;
        for (Json const& arch : nvrtc["archs"]) archs += (archs.empty() ? "" : ", ") + text(arch);
        rows.push_back(
            {"NVRTC", text(nvrtc["version"]) + " at " + text(nvrtc["path"]) + " (" + text(nvrtc["origin"]) + "), archs " + archs});
    } else {
        rows.push_back({"NVRTC", "none: " + text(nvrtc["reason"])});
    }
    Json const& worker = document["worker"];
    rows.push_back({"worker", worker["found"].get<bool>() ? text(worker["path"]) : "none: " + text(worker["reason"])});
    Json const& driver = document["driver"];
    rows.push_back({"driver", driver["found"].get<bool>() ? text(driver["version"]) : "none: " + text(driver["reason"])});
    if (driver["found"].get<bool>()) {
        for (Json const& gpu : driver["gpus"]) {
            rows.push_back({"GPU " + text(gpu["ordinal"]),
                            text(gpu["name"]) + ", " + (gpu["target"].is_null() ? text(gpu["reason"]) : text(gpu["target"])) +
                                ", " + human_bytes(gpu["memory_bytes"].get<std::uint64_t>())});
        }
    }
    Json const& cache = document["cache"];
    std::string state = cache["usable"].get<bool>() ? (cache["writable"].get<bool>() ? "writable" : "read only") : "not usable";
    if (cache.contains("mode")) state += ", mode " + text(cache["mode"]) + ", owner " + text(cache["owner_uid"]);
    if (!text(cache["reason"]).empty()) state += ": " + text(cache["reason"]);
    std::string const path = text(cache["path"]).empty() ? text(cache["named_path"]) : text(cache["path"]);
    rows.push_back({"cache", path + " (" + text(cache["origin"]) + "), " + state});
    for (Json const& warning : document["warnings"]) rows.push_back({"warning", text(warning)});

    std::vector<std::vector<std::string>> settings = {{"SETTING", "VALUE", "ORIGIN", "ACCEPTED"}};
    for (Json const& setting : document["settings"]) {
        std::string const value = text(setting["value"]);
        settings.push_back(
            {text(setting["name"]), value.empty() ? "-" : value, text(setting["origin"]), text(setting["accepted"])});
    }
    return table(rows) + "\n" + table(settings);
}

}  // namespace

int doctor(Common const& options) {
    Service service(options.cache_dir);
    std::string const document = service.doctor();
    print(options.json ? document : readable(Json::parse(document)));
    return kDone;
}

}  // namespace xqajit::cli
