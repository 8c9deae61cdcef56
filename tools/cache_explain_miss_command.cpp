// xqajit cache explain-miss: why a kernel would be compiled, though there is a cache.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string or_dash(Json const& value) { return value.is_null() ? "-" : plain_text(value); }

std::string kernel_text(Json const& kernel) {
    Json const& fields = kernel["fields"];
    std::string text = or_dash(fields.value("family", Json())) + " " + or_dash(fields.value("target", Json())) + " " +
                       plain_text(kernel["key"]) + ": " + plain_text(kernel["result"]);
    if (kernel.contains("served_by")) text += ", served by " + plain_text(kernel["served_by"]);
    if (kernel.contains("error")) text += ": " + plain_text(kernel["error"]);
    if (kernel.contains("compiler_reason")) text += "\nno compiler: " + plain_text(kernel["compiler_reason"]);
    if (!kernel.contains("nearest")) return text;
    if (kernel["nearest"].empty()) text += "\nthe cache has no entry";
    for (Json const& entry : kernel["nearest"]) {
        text += "\n" + plain_text(entry["key"]) + " differs:\n";
        std::vector<std::vector<std::string>> rows = {{"FIELD", "WANTED", "FOUND"}};
        for (Json const& difference : entry["differences"])
            rows.push_back({plain_text(difference["field"]), or_dash(difference["wanted"]), or_dash(difference["found"])});
        text += table(rows);
        text.pop_back();  // print() ends the line
    }
    return text;
}

}  // namespace

int cache_explain_miss(ExplainMissOptions const& options) {
    Service service(options.cache_dir);
    Json documents = Json::array();
    auto const explain = [&](xqajit_params const* params, std::string const& name) {
        Json document = Json::parse(service.cache_explain_miss(options.key, params, options.arch));
        if (!name.empty()) document["name"] = name;
        documents.push_back(std::move(document));
    };
    int exit_code = kDone;
    std::string reason;  // why none is explained
    if (options.shapes.empty() && options.flags.empty()) {
        explain(nullptr, "");
    } else {
        for (auto const& [name, params] : shapes_of(service, options.shapes, options.flags)) {
            try {
                explain(&params, name);
            } catch (Error const& error) {
                if (options.shapes.empty()) throw;
                reason = error.what();
                // With a key only the shapes are meant that have it.
                if (!options.key.empty() && error.code() == XQAJIT_INVALID_ARGUMENT) continue;
                print_error(printable(name) + ": " + reason);
                exit_code = kFailed;
            }
        }
    }
    if (documents.empty() && exit_code == kDone) throw Error(XQAJIT_INVALID_ARGUMENT, reason);
    for (Json const& document : documents) {
        if (!options.json && document.contains("name")) print(printable(document["name"].get<std::string>()));
        for (Json const& kernel : document["kernels"]) {
            if (kernel["result"] == "unusable") exit_code = kFailed;
            if (!options.json) print(kernel_text(kernel));
        }
    }
    if (options.json) {
        Json const list = {{"schema", "xqajit.cache.explain-miss.list/1"}, {"shapes", documents}};
        print(to_text(options.shapes.empty() ? documents.front() : list, 1));
    }
    bool const all_listed = documents.empty() || name_unlisted(documents.front()) == kDone;
    return all_listed ? exit_code : kFailed;
}

}  // namespace xqajit::cli
