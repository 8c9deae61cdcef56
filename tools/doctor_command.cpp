// xqajit doctor: what this machine offers, and every setting.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string readable(Json const& document) {
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"xqajit", plain_text(document["version"])});
    Json const& nvrtc = document["nvrtc"];
    if (nvrtc["found"].get<bool>()) {
        std::string archs;
        for (Json const& arch : nvrtc["archs"]) archs += (archs.empty() ? "" : ", ") + plain_text(arch);
        rows.push_back({"NVRTC", plain_text(nvrtc["version"]) + " at " + plain_text(nvrtc["path"]) + " (" +
                                     plain_text(nvrtc["origin"]) + "), archs " + archs});
    } else {
        rows.push_back({"NVRTC", "none: " + plain_text(nvrtc["reason"])});
    }
    Json const& worker = document["worker"];
    rows.push_back({"worker", worker["found"].get<bool>() ? plain_text(worker["path"]) : "none: " + plain_text(worker["reason"])});
    Json const& driver = document["driver"];
    rows.push_back(
        {"driver", driver["found"].get<bool>() ? plain_text(driver["version"]) : "none: " + plain_text(driver["reason"])});
    if (driver["found"].get<bool>()) {
        for (Json const& gpu : driver["gpus"]) {
            rows.push_back({"GPU " + plain_text(gpu["ordinal"]),
                            plain_text(gpu["name"]) + ", " +
                                (gpu["target"].is_null() ? plain_text(gpu["reason"]) : plain_text(gpu["target"])) + ", " +
                                human_bytes(gpu["memory_bytes"].get<std::uint64_t>())});
        }
    }
    Json const& cache = document["cache"];
    auto const is = [&](char const* fact) { return cache[fact].get<bool>(); };
    std::string state = !is("usable") ? "not usable" : !is("exists") ? "missing" : is("writable") ? "writable" : "read only";
    if (cache.contains("mode")) state += ", mode " + plain_text(cache["mode"]) + ", owner " + plain_text(cache["owner_uid"]);
    if (!plain_text(cache["reason"]).empty()) state += ": " + plain_text(cache["reason"]);
    std::string const path = plain_text(cache["path"]).empty() ? plain_text(cache["named_path"]) : plain_text(cache["path"]);
    rows.push_back({"cache", path + " (" + plain_text(cache["origin"]) + "), " + state});
    for (std::string const& layer : layer_texts(document["layers"])) rows.push_back({"layer", layer});
    if (!document["remote"].is_null()) rows.push_back({"remote", remote_text(document["remote"])});
    for (Json const& warning : document["warnings"]) rows.push_back({"warning", plain_text(warning)});

    std::vector<std::vector<std::string>> settings = {{"SETTING", "VALUE", "ORIGIN", "ACCEPTED"}};
    for (Json const& setting : document["settings"]) {
        std::string const value = plain_text(setting["value"]);
        settings.push_back({plain_text(setting["name"]), value.empty() ? "-" : value, plain_text(setting["origin"]),
                            plain_text(setting["accepted"])});
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
