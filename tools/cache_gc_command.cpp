// xqajit cache gc: what the cache need not keep.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string count_text(Json const& count, char const* what) {
    return to_text(count["files"]) + " " + what + ", " + human_bytes(count["bytes"].get<std::uint64_t>());
}

std::string part_text(Json const& part) {
    std::string text = count_text(part["entries"], "entries");
    for (auto const& [member, what] : {std::pair("temporaries", "temporary files"), std::pair("quarantined", "quarantined files")})
        if (part[member]["files"] != 0) text += "; " + count_text(part[member], what);
    return text;
}

std::string report_text(Json const& document) {
    std::string text = (document["dry_run"].get<bool>() ? "would remove " : "removed ") + part_text(document["removed"]) +
                       "\nkept " + part_text(document["kept"]) + " in " + plain_text(document["path"]);
    if (document["foreign"]["files"] != 0)
        text += "\nleft " + count_text(document["foreign"], "files of others, or no regular files");
    if (!document["exists"].get<bool>()) text += " (it does not exist)";
    return text;
}

}  // namespace

int cache_gc(GcOptions const& options) {
    Service service(options.cache_dir);
    xqajit_gc_options call = XQAJIT_GC_OPTIONS_INIT;
    call.dry_run = options.dry_run ? 1 : 0;
    call.max_bytes = options.max_bytes;
    call.max_age_seconds = options.max_age_seconds;
    auto const [report, exit_code] = report_of([&] { return service.cache_gc(call); });
    Json const document = Json::parse(report);
    print_failed(document);
    print(options.json ? report : report_text(document));
    return exit_code;
}

}  // namespace xqajit::cli
