#include <algorithm>
#include <filesystem>
#include <fstream>

#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

std::vector<std::string> bench(std::vector<std::string> const& more) {
    std::vector<std::string> arguments = with_shape({"bench", "--page-size", "16"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

std::string text_of(std::string const& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("bench measures each shape of a list at each point", "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    std::string const csv = shell.folder() + "/rows.csv";
    std::string const svg = shell.folder() + "/rows.svg";
    json const document =
        shell.document({"bench", "--shapes", list, "--batch", "1,2", "--seq-len", "100", "--csv", csv, "--svg", svg});
    CHECK(document["schema"] == "xqajit.bench/1");
    CHECK(document["summary"] == json{{"points", 6}, {"measured", 6}, {"skipped", 0}, {"failed", 0}, {"checked", 0}});
    for (char const* field : {"gpu", "version", "nvrtc", "protocol"}) CHECK(document.contains(field));
    json const& row = document["rows"][3];
    CHECK(row["head_dim"] == 128);
    CHECK(row["batch"] == 2);
    CHECK(row["lengths"] == "100");
    CHECK(row["kv_bytes"] == 2 * 100 * 8 * (128 + 128) * 2);
    CHECK(row["copies"] == 6);  // 800 KiB each, past four times the fake GPU's megabyte of L2
    CHECK(row["family"] == "gmma");
    CHECK(row["kv_dtype"] == "bf16");
    CHECK(row["nb_sub_seq"] >= 1);
    CHECK(row["grid_x"] >= 8);
    CHECK(row["us"] >= row["us_min"]);
    CHECK(row["read_us"] > 0);
    CHECK(row["pdl"].is_boolean());
    CHECK(row["check_ok"].is_null());
    std::string const rows = text_of(csv);
    CHECK(std::count(rows.begin(), rows.end(), '\n') == 7);
    CHECK(contains(text_of(svg), "</svg>"));
}

TEST_CASE("bench prints a table, and its progress elsewhere", "[cli]") {
    Shell shell;
    ProcessResult const result = shell.run(bench({"--grid", "1x7"}));
    INFO(result.out << result.err);
    CHECK(result.code == 0);
    CHECK(contains(result.out, "FRACTION"));
    CHECK(contains(result.out, "1 points: 1 measured, 0 skipped, 0 failed; 0 checked"));
    CHECK(contains(result.err, "[1/1] bf16/bf16 32:8 heads, D 128, page 16 1x7: "));
}

TEST_CASE("unequal lengths are compared with the same tokens in equal ones", "[cli]") {
    Shell shell;
    json const rows = shell.document(bench({"--unequal", "1x100+3x20"}))["rows"];
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["lengths"] == "1x100+3x20");
    CHECK(rows[1]["lengths"] == "40");
    CHECK(rows[0]["kv_bytes"] == rows[1]["kv_bytes"]);
    CHECK(rows[0]["read_us"] == rows[1]["read_us"]);
    CHECK(rows[0]["vs_equal_lengths"] == rows[0]["us"].get<double>() / rows[1]["us"].get<double>());
    CHECK(rows[1]["vs_equal_lengths"].is_null());
}

TEST_CASE("bench skips what the memory cannot hold, says so, and goes on", "[cli]") {
    Shell shell;
    struct Row {
        std::vector<std::string> shape;
        char const* point;
        char const* reason;
    };
    for (Row const& row : std::vector<Row>{
             {{"--page-size", "16"}, "65536x16777216", "of the device's memory"},
             {{"--page-size", "16", "--beam-width", "8"}, "65536x16777216", "of the device's memory"},
             {{}, "2x1048576", "contiguous KV takes 8.0 GiB"},
             {{}, "1x1048576+1x1", "contiguous KV takes 8.0 GiB"},
         }) {
        std::vector<std::string> arguments = with_shape({"bench", "--grid", std::string(row.point) + ",1x7"}, row.shape);
        json const document = shell.document(arguments);
        CHECK(document["summary"]["skipped"] == 1);
        CHECK(document["summary"]["measured"] == 1);
        CHECK(document["rows"][0]["outcome"] == "skipped");
        CHECK(contains(document["rows"][0]["reason"].get<std::string>(), row.reason));
        CHECK(document["rows"][0]["us"].is_null());
    }
    shell.set("FAKE_CUDA_FAIL", "cuMemAlloc=2");
    ProcessResult const full = shell.run(bench({"--grid", "1x7"}));
    CHECK(full.code == 0);
    CHECK(contains(full.out, "skipped: bf16/bf16 32:8 heads, D 128, page 16 1x7: "));
}

TEST_CASE("bench names each point that failed, and exits with 1", "[cli]") {
    Shell shell;
    struct Row {
        std::vector<std::string> arguments;
        char const* reason;
    };
    for (Row const& row : std::vector<Row>{
             {{"--check"}, "differs from the reference"},  // the fake driver computes nothing
             {{"--kernel", "mla"}, "mla.not_built"},
             {{"--split", "4", "--division", "balanced"}, "common.nb_sub_seq"},
             {{"--split", "4", "--division", "invariant"}, "common.nb_sub_seq"},
             {{"--cross-attention"}, "common.cross_attention"},
             {{"--kv-dtype", "nvfp4"}, "common.nvfp4"},
         }) {
        std::vector<std::string> arguments = bench({"--grid", "2x7,1x7"});
        arguments.insert(arguments.end(), row.arguments.begin(), row.arguments.end());
        json const document = shell.document(arguments, 1);
        CHECK(document["summary"]["failed"] == 2);
        CHECK(contains(document["rows"][1]["reason"].get<std::string>(), row.reason));
        ProcessResult const text = shell.run(arguments);
        CHECK(text.code == 1);
        CHECK(contains(text.out, "failed: "));
        for (char const* point : {" 2x7: ", " 1x7: "}) CHECK(contains(text.err, point));
        CHECK(contains(text.err, row.reason));
    }
}

TEST_CASE("bench says which points would take too long to check", "[cli]") {
    Shell shell;
    std::vector<std::string> const arguments = {"bench",  "--q-dtype",  "bf16", "--num-q-heads", "128",    "--num-kv-heads",
                                                "1",      "--head-dim", "256",  "--page-size",   "16",     "--spec-dec",
                                                "linear", "--q-len",    "64",   "--grid",        "1x1000", "--check"};
    json const document = shell.document(arguments);
    CHECK(document["summary"]["measured"] == 1);
    CHECK(document["summary"]["checked"] == 0);
    CHECK(contains(document["rows"][0]["check_reason"].get<std::string>(), "multiply-adds"));
    CHECK(contains(shell.run(arguments).out, "not checked: "));
}

TEST_CASE("bench takes the split and the division for one shape and for a whole list", "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    for (std::vector<std::string> const& shape : {with_shape({"bench"}), {"bench", "--shapes", list}})
        for (char const* flag : {"--split", "--nb-sub-seq"}) {
            std::vector<std::string> arguments = shape;
            for (char const* part : {"--grid", "1x4096", flag, "3"}) arguments.push_back(part);
            json const document = shell.document(arguments);
            for (json const& row : document["rows"]) CHECK(row["nb_sub_seq"] == 3);
        }
    std::vector<std::string> const invariant = {"bench", "--shapes", list, "--grid", "1x4096", "--division", "invariant"};
    json const document = shell.document(invariant);
    for (json const& row : document["rows"]) CHECK(row["division"] == "invariant");
}

TEST_CASE("bench reports which of programmatic launch on and off was the better, or the one that is set", "[cli]") {
    Shell shell;
    for (bool const on : {false, true}) {
        shell.set("XQAJIT_PDL", on ? "on" : "off");
        CHECK(shell.document(bench({"--grid", "1x7"}))["rows"][0]["pdl"] == on);
    }
    shell.set("FAKE_CUDA_DEVICES", "8.0");  // has none
    CHECK(shell.document(bench({"--grid", "1x7"}))["rows"][0]["pdl"] == false);
}

TEST_CASE("a usage error of bench exits with 2, names what is wrong and needs no GPU", "[cli]") {
    Shell shell;
    shell.set("FAKE_CUDA_DEVICES", "");
    std::string const list = shell.write("list.json", kList);
    struct Row {
        std::vector<std::string> arguments;
        char const* named;
    };
    for (Row const& row : std::vector<Row>{
             {{"bench"}, "--shapes"},
             {{"bench", "--division", "static"}, "--shapes"},
             {{"bench", "--shapes", list, "--head-dim", "64"}, "shape flags"},
             {{"bench", "--shapes", "/nowhere.json"}, "/nowhere.json"},
             {{"bench", "--shapes", list, "--division", "even"}, "'even'"},
             {bench({"--grid", "8192"}), "--grid: '8192'"},
             {bench({"--grid", ""}), "--grid: ''"},
             {bench({"--batch", "0"}), "--batch: '0'"},
             {bench({"--seq-len", "1k"}), "--seq-len: '1k'"},
             {bench({"--unequal", "1x2+x"}), "--unequal: '1x2+x'"},
             {bench({"--kernel", "mma"}), "'mma'"},
             {bench({"--split", "6001"}), "0..6000"},
             {bench({"--split", "2", "--nb-sub-seq", "2"}), "--nb-sub-seq"},
             {bench({"--csv", "/nowhere/rows.csv"}), "/nowhere/rows.csv"},
             {bench({"--svg", shell.folder()}), "directory"},
         }) {
        ProcessResult const result = shell.run(row.arguments);
        INFO(row.named << ": " << result.out << result.err);
        CHECK(result.code == 2);
        CHECK(contains(result.err, row.named));
        CHECK(result.out.empty());
    }
}

TEST_CASE("a bench that measures nothing leaves the files of an earlier one as they were", "[cli]") {
    Shell shell;
    std::string const csv = shell.write("rows.csv", "earlier rows");
    std::string const svg = shell.folder() + "/rows.svg";
    for (std::vector<std::string> const& arguments :
         {bench({"--csv", csv, "--svg", "/nowhere/rows.svg"}), bench({"--csv", csv, "--svg", svg, "--grid", "8192"}),
          bench({"--csv", csv, "--svg", svg, "--kernel", "mma"})}) {
        CHECK(shell.run(arguments).code == 2);
        CHECK(text_of(csv) == "earlier rows");
        CHECK_FALSE(std::filesystem::exists(svg));
    }
    shell.set("FAKE_CUDA_DEVICES", "");
    CHECK(shell.run(bench({"--csv", csv, "--svg", svg})).code == 3);
    CHECK(text_of(csv) == "earlier rows");
    CHECK_FALSE(std::filesystem::exists(svg));
}

TEST_CASE("bench without a compiler has no roofline, and exits with 3", "[cli]") {
    Shell shell;
    shell.set("XQAJIT_NVRTC_PATH", "/nowhere");
    ProcessResult const result = shell.run(bench({"--grid", "1x7"}));
    CHECK(result.code == 3);
    CHECK(contains(result.err, "/nowhere"));
}

}  // namespace xqajit
