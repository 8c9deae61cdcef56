// xqajit explain: the whole chain from a shape to a launch, without a GPU; and xqajit capabilities.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string image_line(Json const& image) {
    std::string line = "from " + plain_text(image["from"]);
    for (char const* field : {"reason", "note"})
        if (image.contains(field)) line += " (" + plain_text(image[field]) + ")";
    return line;
}

std::string key_line(Json const& key) {
    return plain_text(key["body"]) +
           (key["compiler"].is_null() ? ", no compiler: " + plain_text(key["compiler_reason"])
                                      : "/" + plain_text(key["compiler"]["id"]) + ", NVRTC " + plain_text(key["compiler"]["path"]));
}

std::string macros_line(Json const& macros) {
    std::string line;
    for (auto const& [name, value] : macros.items()) line += (line.empty() ? "" : " ") + name + "=" + plain_text(value);
    return line;
}

// What prepare or run would answer: the exit code of its status.
int exit_code(Json const& document) {
    Json const& refused = document.contains("error") ? document : document["launch"];
    if (!refused.contains("error")) return kDone;
    for (int code = XQAJIT_OK; code <= XQAJIT_INTERNAL; ++code) {
        auto const status = static_cast<xqajit_status>(code);
        if (refused["error"]["status"] == xqajit_status_name(status)) return exit_code_of(status);
    }
    return kFailed;
}

std::string readable(Json const& document) {
    std::vector<std::vector<std::string>> rows;
    rows.push_back({"shape", plain_text(document["summary"])});
    Json const& arch = document["arch"];
    rows.push_back(
        {"arch", plain_text(arch["target"]) + " (" + plain_text(arch["origin"]) + "), " + plain_text(arch["sm_count"]) + " SMs"});
    for (Json const& admission : document["admissions"]) {
        bool const admitted = admission["admitted"].get<bool>();
        rows.push_back({plain_text(admission["family"]),
                        admitted ? "admits it" : plain_text(admission["rule"]) + ": " + plain_text(admission["text"])});
    }
    if (document.contains("error")) {
        rows.push_back({plain_text(document["error"]["status"]), plain_text(document["error"]["message"])});
        return table(rows);
    }
    rows.push_back({"selection", plain_text(document["selection"]["family"]) + ", " + plain_text(document["selection"]["reason"])});
    rows.push_back({"macros", macros_line(document["macros"])});
    rows.push_back({"key", key_line(document["key"])});
    rows.push_back({"image", image_line(document["image"])});
    Json const& launch = document["launch"];
    std::string const bounds = "batch " + plain_text(launch["batch"]) + ", length " + plain_text(launch["seq_len"]) + ", " +
                               plain_text(launch["division"]);
    if (launch.contains("plan")) {
        Json const& plan = launch["plan"];
        rows.push_back({"launch", bounds + ": grid " + plain_text(plan["grid_x"]) + " x block " + plain_text(plan["block_x"]) +
                                      ", " + plain_text(plan["nb_sub_seq"]) + " sub-sequences, " +
                                      plain_text(plan["nb_row_blocks"]) + " row blocks" +
                                      (launch["pdl"].get<bool>() ? ", pdl" : "")});
    } else {
        rows.push_back({"launch", bounds + ": refused: " + plain_text(launch["error"]["message"])});
    }
    if (launch.contains("workspace_size")) rows.push_back({"workspace", plain_text(launch["workspace_size"]) + " bytes"});
    Json const& gate = document["perf_gate"];
    rows.push_back({"perf gate", plain_text(gate["setting"]) + (gate["passes"].get<bool>() ? ", passes" : ", does not pass") +
                                     (gate.contains("effect") ? " (" + plain_text(gate["effect"]) + ")" : "")});
    return table(rows);
}

}  // namespace

int explain(ExplainOptions const& options) {
    Service service(options.cache_dir);
    Json documents = Json::array();
    int first_refusal = kDone;
    for (auto const& [name, params] : shapes_of(service, options.shapes, options.flags)) {
        Json document = Json::parse(service.explain(params, options.arch, options.batch, options.seq_len));
        if (first_refusal == kDone) first_refusal = exit_code(document);
        if (!options.json) print((name.empty() ? "" : printable(name) + "\n") + readable(document));
        if (!name.empty()) document["name"] = name;
        documents.push_back(std::move(document));
    }
    if (options.json) {
        Json const list = {{"schema", "xqajit.explain.list/1"}, {"shapes", documents}};
        print(to_text(options.shapes.empty() ? documents.front() : list, 1));
    }
    return first_refusal;
}

int capabilities(Common const& options, std::string const& arch) {
    Service service(options.cache_dir);
    std::string const document = service.capabilities(arch);
    if (options.json) {
        print(document);
        return kDone;
    }
    Json const json = Json::parse(document);
    print(plain_text(json["arch"]) + " (" + plain_text(json["arch_origin"]) + ")");
    std::vector<std::vector<std::string>> rows = {{"FAMILY", "SHAPE", "PAGES", "HEAD DIMS", "GROUPS", "BEAMS", "DIVISIONS"}};
    auto const range = [](Json const& values) {
        if (values.empty()) return std::string("none");
        if (values.size() <= 12) return to_text(values);
        return plain_text(values.front()) + ".." + plain_text(values.back()) + " (" + std::to_string(values.size()) + " values)";
    };
    auto const names = [](Json const& values) {
        std::string line;
        for (Json const& value : values) line += (line.empty() ? "" : ", ") + plain_text(value);
        return line;
    };
    for (Json const& family : json["families"]) {
        for (char const* shape : {"decode", "mla"}) {
            Json const& served = family[shape];
            if (served.is_null()) {
                rows.push_back({plain_text(family["family"]), shape, family["built"].get<bool>() ? "not served" : "not built"});
            } else {
                rows.push_back({plain_text(family["family"]), shape, range(served["page_sizes"]), range(served["head_dims"]),
                                range(served["group_sizes"]), range(served["beam_widths"]), names(served["divisions"])});
            }
        }
    }
    print(table(rows));
    return kDone;
}

}  // namespace xqajit::cli
