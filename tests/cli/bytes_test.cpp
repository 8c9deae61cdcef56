// Bytes of any kind, in all that a document tells of.
#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

constexpr char kReplaced[] = "a\xef\xbf\xbdz";  // "a\xffz" as a document shows it

struct Row {
    std::string variable, value;
    std::vector<std::string> arguments;
    int exit_code = 0;
    bool shown = true;
};

std::vector<Row> rows_of(std::string const& folder, std::string const& list) {
    std::string const path = folder + "/a\xffz";
    std::vector<std::string> const prewarm = {"prewarm", "--shapes", list, "--arch", "sm_90a"};
    std::vector<Row> rows = {
        {"XQAJIT_CACHE_DIR", path, prewarm, 0, false},  // and the verbs below find entries there
        {"XQAJIT_UNKNOWN", "a\xffz", {"doctor"}, 0, false},
        {"XQAJIT_UNKNOWN_a\xffz", "1", {"doctor"}},
        {"FAKE_NVRTC_FAIL", "kernel.cu(1): error: a\xffz\nanother line with \xc3", prewarm, 1},
        {"XQAJIT_NVRTC_PATH", path, with_shape({"explain", "--arch", "sm_90a"})},
        {"XQAJIT_NVRTC_PATH", path, prewarm, 3},
    };
    for (char const* verb : {"path", "ls", "stats", "verify"}) {
        rows.push_back({"XQAJIT_CACHE_DIR", path, {"cache", verb}});
        rows.push_back({"UNUSED", "", {"cache", verb, "--cache-dir", path}});
    }
    rows.push_back({"XQAJIT_CACHE_LAYERS", path, {"cache", "path"}});
    rows.push_back({"UNUSED", "", {"cache", "export", path + ".xqb"}});
    rows.push_back({"UNUSED", "", {"cache", "show", path + ".xqb"}});
    for (char const* setting : {"XQAJIT_CACHE_DIR", "XQAJIT_NVRTC_PATH", "XQAJIT_WORKER", "XQAJIT_RECORD_SHAPES",
                                "XQAJIT_CACHE_LAYERS", "XQAJIT_CACHE_KEY_FILE"})
        rows.push_back({setting, path, {"doctor"}});
    return rows;
}

}  // namespace

TEST_CASE("bytes that are no UTF-8 cost no document", "[cli]") {
    Shell const files;
    std::string const list = files.write("list.json", kList);
    for (Row const& row : rows_of(files.folder(), list)) {
        INFO(row.variable << "=" << row.value << " " << row.arguments.front() << " " << row.arguments.back());
        Shell shell;
        shell.set(row.variable, row.value);
        std::string const document = shell.document(row.arguments, row.exit_code).dump();
        CHECK(contains(document, kReplaced) == row.shown);
        ProcessResult const text = shell.run(row.arguments);
        CHECK(text.code == row.exit_code);
        CHECK(contains(text.out + text.err, "parse_error") == false);
    }
}

TEST_CASE("bytes that are no UTF-8 are refused by name where a name or a value is wanted", "[cli]") {
    Shell shell;
    struct Refused {
        std::vector<std::string> arguments;
        char const* named;
    };
    for (Refused const& row : std::vector<Refused>{
             {with_shape({"explain"}, {"--kv-dtype", "a\xffz"}), "kv_dtype is"},
             {with_shape({"explain"}, {"--arch", "a\xffz"}), "arch"},
             {{"prewarm", "--shapes", shell.folder() + "/a\xffz"}, "a\xffz"},
             {{"prewarm", "--shapes", shell.write("a\xffz", "{\"version\": 1, \"shapes\": [{\"name\": \"\xff\"}]}")}, "UTF-8"},
             {{"cache", "show", "a\xffz"}, "a\xffz"},
             {{"a\xffz"}, "a\xffz"},
         }) {
        ProcessResult const result = shell.run(row.arguments);
        INFO(result.out << result.err);
        CHECK(result.code == 2);
        CHECK(contains(result.err, row.named));
    }
}

}  // namespace xqajit
