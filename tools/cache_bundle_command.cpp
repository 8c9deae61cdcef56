// xqajit cache export, import, and show of a bundle; and the layers and the remote as cache path and doctor show them.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes_of(Json const& object, char const* member) { return human_bytes(object[member].get<std::uint64_t>()); }

std::string member_of(Json const& metadata, char const* name) {
    return metadata.is_object() && metadata.contains(name) ? plain_text(metadata[name]) : "-";
}

}  // namespace

int cache_export(BundleOptions const& options) {
    Service service(options.cache_dir);
    auto const [report, exit_code] = report_of([&] { return service.cache_export(options.file); });
    Json const document = Json::parse(report);
    print_failed(document);
    if (options.json) {
        print(report);
        return exit_code;
    }
    print(plain_text(document["file"]) + ": " + to_text(document["entries"]) + " entries of " + plain_text(document["path"]) +
          ", " + bytes_of(document, "bytes") + " for " + bytes_of(document, "entry_bytes") + ", " +
          (document["signed"].get<bool>() ? "signed" : "not signed"));
    return exit_code;
}

int cache_import(BundleOptions const& options) {
    Service service(options.cache_dir);
    xqajit_import_options call = XQAJIT_IMPORT_OPTIONS_INIT;
    call.allow_unsigned = options.allow_unsigned ? 1 : 0;
    std::string const report = service.cache_import(options.file, call);
    if (options.json) {
        print(report);
        return kDone;
    }
    Json const document = Json::parse(report);
    std::uint64_t const entries = document["entries"], imported = document["imported"], verified = document["verified"];
    print(std::to_string(entries) + " entries, " + std::to_string(imported) + " imported into " + plain_text(document["path"]) +
          ", " + std::to_string(entries - imported) + " there already; " + std::to_string(verified) + " signatures verified");
    return kDone;
}

int show_bundle(BundleOptions const& options) {
    Service service(options.cache_dir);
    std::string const report = service.cache_show_bundle(options.file);
    if (options.json) {
        print(report);
        return kDone;
    }
    Json const document = Json::parse(report);
    std::vector<std::vector<std::string>> rows = {
        {"KEY", "FAMILY", "TARGET", "SIZE", "PACKED", "REGISTERS", "NVRTC", "CREATED", "SIGNED"}};
    for (Json const& entry : document["entries"]) {
        Json const& metadata = entry["metadata"];
        rows.push_back({entry["key"].get<std::string>().substr(0, 12), member_of(metadata, "family"), member_of(metadata, "target"),
                        bytes_of(entry, "bytes"), bytes_of(entry, "packed_bytes"), member_of(metadata, "registers"),
                        member_of(metadata, "nvrtc_version"), member_of(metadata, "created"),
                        entry["is_signed"].get<bool>() ? "yes" : "no"});
    }
    Json const& summary = document["summary"];
    print(table(rows) + to_text(summary["entries"]) + " entries, " + bytes_of(summary, "image_bytes") + ", as " +
          bytes_of(document, "bytes") + (document["compressed"].get<bool>() ? " (zstd)" : " (not compressed)") + " in " +
          plain_text(document["file"]));
    return kDone;
}

std::vector<std::string> layer_texts(Json const& layers) {
    std::vector<std::string> texts;
    for (Json const& layer : layers) {
        std::string text = plain_text(layer["path"]) + " (" + plain_text(layer["origin"]) + "), ";
        if (plain_text(layer["path"]).empty()) text = plain_text(layer["origin"]) + ", ";
        if (!layer["usable"].get<bool>())
            text += "not usable: " + plain_text(layer["reason"]);
        else if (layer["kind"] == "bundle")
            text += "bundle of " + to_text(layer["entries"]) + " entries, " + bytes_of(layer, "bytes");
        else
            text += "directory";
        texts.push_back(std::move(text));
    }
    return texts;
}

std::string remote_text(Json const& remote) {
    auto const is = [&](char const* fact) { return remote[fact].get<bool>(); };
    std::string text = plain_text(remote["url"]) + " (" + plain_text(remote["origin"]) + "), " +
                       (!is("usable")     ? "not usable"
                        : is("reachable") ? "reachable"
                                          : "not reachable") +
                       ", " + (is("writable") ? "read and written" : "only read") + ", key file " + plain_text(remote["key_file"]) +
                       (is("allow_unsigned") ? ", unsigned entries are taken" : "");
    if (!plain_text(remote["reason"]).empty()) text += ": " + plain_text(remote["reason"]);
    return text;
}

}  // namespace xqajit::cli
