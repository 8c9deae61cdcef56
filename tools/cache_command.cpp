// xqajit cache: what is on disk.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(Json const& object, char const* field) {
    if (!object.is_object() || !object.contains(field)) return "-";
    Json const& value = object[field];
    return value.is_string() || value.is_number() ? plain_text(value) : "-";
}

// Metadata is whatever the file says: a member that is missing or of another type is unknown, never a failure.
std::optional<double> compile_ms(Json const& metadata) {
    if (!metadata.is_object() || !metadata.contains("compile_ms") || !metadata["compile_ms"].is_number()) return std::nullopt;
    return metadata["compile_ms"].get<double>();
}

std::string ms_of(Json const& metadata) {
    std::optional<double> const ms = compile_ms(metadata);
    return ms ? std::to_string(static_cast<long>(*ms)) : "-";
}

// A missing directory is an empty cache, and perhaps not the one that was meant.
std::string if_missing(Json const& document) {
    return document["exists"].get<bool>() ? "" : " (" + plain_text(document["path"]) + " does not exist)";
}

std::string listing(Json const& document) {
    std::vector<std::vector<std::string>> rows = {
        {"KEY", "FAMILY", "TARGET", "SIZE", "REGISTERS", "SPILLS", "MS", "NVRTC", "CREATED", "STATE"}};
    for (Json const& entry : document["entries"]) {
        Json const metadata = entry.value("metadata", Json());
        rows.push_back({entry["key"].get<std::string>().substr(0, 12), text_of(metadata, "family"), text_of(metadata, "target"),
                        human_bytes(entry["bytes"].get<std::uint64_t>()), text_of(metadata, "registers"),
                        text_of(metadata, "spill_bytes"), ms_of(metadata), text_of(metadata, "nvrtc_version"),
                        text_of(metadata, "created"),
                        entry["ok"].get<bool>() ? "ok" : plain_text(entry["state"]) + ": " + plain_text(entry["error"])});
    }
    Json const& summary = document["summary"];
    return table(rows) + to_text(summary["entries"]) + " entries, " + human_bytes(summary["bytes"].get<std::uint64_t>()) + " in " +
           plain_text(document["path"]) + if_missing(document);
}

// Totals by family, target and compiler, from the listing.
Json statistics(Json const& document) {
    struct Group {
        std::uint64_t entries = 0, bytes = 0;
        double compile_ms = 0;
    };
    std::map<std::vector<std::string>, Group> groups;
    std::map<std::string, std::uint64_t> bad = {{"corrupt", 0}, {"unreadable", 0}};
    for (Json const& entry : document["entries"]) {
        if (!entry["ok"].get<bool>()) {
            ++bad[plain_text(entry["state"])];
            continue;
        }
        Json const metadata = entry.value("metadata", Json());
        Group& group = groups[{text_of(metadata, "family"), text_of(metadata, "target"), text_of(metadata, "nvrtc_version")}];
        ++group.entries;
        group.bytes += entry["bytes"].get<std::uint64_t>();
        group.compile_ms += compile_ms(metadata).value_or(0);
    }
    Json list = Json::array();
    for (auto const& [names, group] : groups) {
        list.push_back({{"family", names[0]},
                        {"target", names[1]},
                        {"nvrtc_version", names[2]},
                        {"entries", group.entries},
                        {"bytes", group.bytes},
                        {"compile_ms", group.compile_ms}});
    }
    return {{"schema", "xqajit.cache.stats/1"},
            {"path", document["path"]},
            {"exists", document["exists"]},
            {"groups", std::move(list)},
            {"unlisted", document["unlisted"]},
            {"summary",
             {{"entries", document["summary"]["entries"]},
              {"bytes", document["summary"]["bytes"]},
              {"corrupt", bad["corrupt"]},
              {"unreadable", bad["unreadable"]}}}};
}

std::string statistics_text(Json const& statistics) {
    std::vector<std::vector<std::string>> rows = {{"FAMILY", "TARGET", "NVRTC", "ENTRIES", "SIZE", "COMPILE MS"}};
    for (Json const& group : statistics["groups"]) {
        rows.push_back({text_of(group, "family"), text_of(group, "target"), text_of(group, "nvrtc_version"),
                        text_of(group, "entries"), human_bytes(group["bytes"].get<std::uint64_t>()), ms_of(group)});
    }
    Json const& summary = statistics["summary"];
    return table(rows) + to_text(summary["entries"]) + " entries, " + human_bytes(summary["bytes"].get<std::uint64_t>()) + ", " +
           to_text(summary["corrupt"]) + " corrupt, " + to_text(summary["unreadable"]) + " unreadable" + if_missing(statistics);
}

std::string fields(Json const& object) {
    std::vector<std::vector<std::string>> rows;
    for (auto const& [name, value] : object.items()) {
        if (name == "schema") continue;
        if (!value.is_object()) {
            rows.push_back({name, plain_text(value)});
            continue;
        }
        for (auto const& [inner, inner_value] : value.items()) rows.push_back({name + "." + inner, plain_text(inner_value)});
    }
    return table(rows);
}

int verify(Service& service, bool json) {
    auto const [report, exit_code] = report_of([&] { return service.cache_verify(); });  // failed too: what is out of reach
    if (json) {
        print(report);
        return exit_code;
    }
    Json const document = Json::parse(report);
    for (Json const& bad : document["failed"])
        print(plain_text(bad["path"]) + ": " + plain_text(bad["state"]) + ": " + plain_text(bad["error"]));
    for (Json const& file : document["temporaries"]) print(plain_text(file["path"]) + ": temporary: being written, or left behind");
    Json const& summary = document["summary"];
    std::string text = to_text(summary["entries"]) + " entries: " + to_text(summary["ok"]) + " ok, " + to_text(summary["corrupt"]) +
                       " corrupt, " + to_text(summary["unreadable"]) + " unreadable";
    if (!document["temporaries"].empty()) {
        text += "; " + to_text(summary["temporaries"]) + " temporary files, " +
                human_bytes(summary["temporary_bytes"].get<std::uint64_t>());
    }
    print(text + if_missing(document));
    return exit_code;
}

// What all processes counted that used the directory.
std::string counted_text(Json const& metrics) {
    std::string text = "counted: hits";
    for (auto const& [layer, hits] : metrics["hits"].items()) text += " " + layer + " " + to_text(hits) + ",";
    Json const& compile = metrics["seconds"]["compile"];
    return text + " " + to_text(metrics["misses"]) + " misses, " + to_text(metrics["compiles"]) + " compiles in " +
           std::to_string(std::lround(compile["sum"].get<double>())) + " s, " + to_text(metrics["compile_failures"]) + " failed, " +
           to_text(metrics["quarantined"]) + " set aside, " + to_text(metrics["lock_waits"]) +
           " waits for another process; remote " + to_text(metrics["remote_stored"]) + " stored, " +
           to_text(metrics["remote_not_stored"]) + " not, " + to_text(metrics["remote_refused"]) + " refused, " +
           to_text(metrics["remote_errors"]) + " errors";
}

int stats(Service& service, CacheOptions const& options) {
    if (options.prometheus) {
        print(service.metrics(XQAJIT_METRICS_CACHE, XQAJIT_METRICS_PROMETHEUS));
        return kDone;
    }
    Json document = statistics(Json::parse(service.cache_list()));
    int exit_code = kDone;
    document["metrics"] = nullptr;
    try {
        document["metrics"] = Json::parse(service.metrics(XQAJIT_METRICS_CACHE, XQAJIT_METRICS_JSON));
    } catch (Error const& error) {
        print_error(error.what());
        exit_code = kFailed;
    }
    if (options.json)
        print(to_text(document, 1));
    else
        print(statistics_text(document) + (exit_code == kDone ? "\n" + counted_text(document["metrics"]) : ""));
    return name_unlisted(document) == kDone ? exit_code : kFailed;
}

}  // namespace

Report report_of(std::function<std::string()> const& call) {
    try {
        return {call(), kDone};
    } catch (Error const& error) {
        if (error.report().empty()) throw;
        print_error(error.what());
        return {error.report(), kFailed};
    }
}

void print_failed(nlohmann::ordered_json const& document) {
    for (auto const& bad : document["failed"])
        print_error(plain_text(bad["path"]) + ": " + plain_text(bad["state"]) + ": " + plain_text(bad["error"]));
}

int name_unlisted(Json const& document) {
    for (Json const& folder : document["unlisted"])
        print_error(plain_text(folder["path"]) + " is not listed: " + plain_text(folder["state"]) + ": " +
                    plain_text(folder["error"]));
    return document["unlisted"].empty() ? kDone : kFailed;
}

int cache(CacheOptions const& options) {
    if (options.verb == "show" && options.key.find_first_not_of("0123456789abcdef/") != std::string::npos)
        return show_bundle({options, options.key});
    Service service(options.cache_dir);
    if (options.verb == "verify") return verify(service, options.json);
    if (options.verb == "show") {
        std::string const document = service.cache_show(options.key);
        print(options.json ? document : fields(Json::parse(document)));
    } else if (options.verb == "path") {
        std::string const document = service.cache_path();
        Json const state = Json::parse(document);
        print(options.json ? document : state["path"].get<std::string>());
        if (!options.json) {
            for (std::string const& layer : layer_texts(state["layers"])) print("layer " + layer);
            if (!state["remote"].is_null()) print("remote " + remote_text(state["remote"]));
        }
        if (!state["reason"].get<std::string>().empty()) print_error(state["reason"].get<std::string>());
        return state["usable"].get<bool>() ? kDone : kNotHere;
    } else if (options.verb == "stats") {
        return stats(service, options);
    } else {
        Json const document = Json::parse(service.cache_list());
        print(options.json ? to_text(document, 1) : listing(document));
        return name_unlisted(document);
    }
    return kDone;
}

}  // namespace xqajit::cli
