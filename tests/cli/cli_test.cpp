#include <algorithm>
#include <fstream>

#include "catch.h"
#include "params/fields.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

TEST_CASE("help and version go to standard output and succeed", "[cli]") {
    Shell shell;
    shell.set("XQAJIT_NVRTC_PATH", "/nowhere");  // neither needs a compiler
    for (std::vector<std::string> const& arguments : {std::vector<std::string>{"--help"},
                                                      {"prewarm", "--help"},
                                                      {"cache", "--help"},
                                                      {"cache", "ls", "--help"},
                                                      {"cache", "gc", "--help"},
                                                      {"explain", "--help"},
                                                      {"bench", "--help"},
                                                      {"run", "--help"},
                                                      {"doctor", "--help"},
                                                      {"--version"}}) {
        ProcessResult const result = shell.run(arguments);
        CHECK(result.code == 0);
        CHECK_FALSE(result.out.empty());
        CHECK(result.err.empty());
    }
    CHECK(contains(shell.run({"--version"}).out, "0.1.0"));
}

TEST_CASE("every field of a shape is a flag of explain, run and bench", "[cli]") {
    Shell shell;
    for (char const* command : {"explain", "run", "bench"}) {
        std::string const help = shell.run({command, "--help"}).out;
        for (Field const& field : params_fields()) {
            std::string flag = std::string("--") + field.name;
            std::replace(flag.begin(), flag.end(), '_', '-');
            INFO(flag);
            CHECK(contains(help, flag + " "));
        }
    }
}

TEST_CASE("a usage error exits with 2 and names what is wrong", "[cli][A07]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    std::string const bad_key = shell.write("bad.json", "{\"version\": 1,\n \"shapes\": [\n  {\"head_dims\": 64}]}");
    struct Row {
        std::vector<std::string> arguments;
        char const* named;
    };
    for (Row const& row : std::vector<Row>{
             {{}, "ubcommand"},
             {{"prewarn"}, "prewarn"},
             {{"prewarm"}, "--shapes"},
             {{"prewarm", "--shapes", "/nowhere.json"}, "/nowhere.json"},
             {{"prewarm", "--shapes", shell.folder()}, "directory"},
             {{"prewarm", "--shapes", bad_key, "--arch", "sm_90a"}, "head_dims"},
             {{"prewarm", "--shapes", bad_key, "--arch", "sm_90a"}, "line 3"},
             {{"prewarm", "--shapes", list, "--arch", "sm_9O"}, "sm_9O"},
             {{"prewarm", "--shapes", list, "--jobs", "0"}, "--jobs"},
             {{"prewarm", "--shapes", list, "--jobs", "many"}, "many"},
             {{"cache"}, "ubcommand"},
             {{"cache", "list"}, "list"},
             {{"cache", "show"}, "KEY"},
             {{"cache", "show", "0123"}, "0123"},
             {{"explain"}, "--shapes"},
             {with_shape({"explain", "--shapes", list}), "--shapes"},
             {{"explain", "--num-q-hed", "3"}, "--num-q-hed"},
             {with_shape({"explain"}, {"--kv-dtype", "fp7"}), "fp7"},
             {with_shape({"explain"}, {"--page-size", "48"}), "page_size is 48"},
             {with_shape({"explain"}, {"--page-size", "big"}), "big"},
             {with_shape({"explain"}, {"--batch", "-1"}), "--batch"},
             {with_shape({"explain"}, {"--batch", "65537"}), "'65537': accepted are 0..65536"},
             {with_shape({"explain"}, {"--batch", "010"}), "'010': accepted are 0..65536"},
             {with_shape({"explain"}, {"--batch", "0x10"}), "'0x10': accepted are 0..65536"},
             {with_shape({"explain"}, {"--seq-len=-5"}), "'-5': accepted are 0..2147483647"},
             {with_shape({"explain"}, {"--seq-len", "2147483648"}), "'2147483648': accepted are 0..2147483647"},
             {with_shape({"explain"}, {"--seq-len", "99999999999999999999"}), "99999999999999999999"},
             {with_shape({"explain"}, {"--page-size", "-16"}), "page_size is -16"},
             {with_shape({"explain"}, {"--page-size", "020"}), "page_size is '020'"},
             {with_shape({"explain"}, {"--sinks=maybe"}), "'maybe': accepted are true, false, 1, 0"},
             {with_shape({"explain"}, {"--page-size", "48"}), "xqajit: page_size is 48"},
             {{"run"}, "--q-dtype, --num-q-heads, --num-kv-heads, --head-dim"},
             {{"run", "--q-dtype", "bf16", "--num-q-heads", "8"}, "lack --num-kv-heads, --head-dim"},
             {{"prewarm", "--shapes", list, "--arch", "garbage"}, "xqajit: arch"},
             {with_shape({"explain"}, {"--arch", "sm_70"}), "sm_70"},
             {{"explain", "--q-dtype", "bf16", "--num-q-heads", "30", "--num-kv-heads", "8", "--head-dim", "64"},
              "num_q_heads is 30"},
             {with_shape({"run"}, {"--batch", "0"}), "--batch"},
             {{"doctor", "--jsn"}, "--jsn"},
         }) {
        ProcessResult const result = shell.run(row.arguments);
        INFO(result.out << result.err);
        CHECK(result.code == 2);
        CHECK(contains(result.err, row.named));
        CHECK(result.out.empty());
    }
    shell.set("XQAJIT_DIVISION", "fair");
    ProcessResult const setting = shell.run({"doctor"});
    CHECK(setting.code == 2);
    CHECK(contains(setting.err, "XQAJIT_DIVISION is 'fair'"));
}

TEST_CASE("a misspelt subcommand or flag is answered with the one that was meant", "[cli]") {
    Shell shell;
    struct Row {
        std::vector<std::string> arguments;
        char const* meant;  // null: nothing is close
    };
    for (Row const& row : std::vector<Row>{
             {{"prewarn"}, "prewarn: did you mean 'prewarm'?"},
             {{"PREWARN"}, "PREWARN: did you mean 'prewarm'?"},
             {{"explian"}, "'explain'"},
             {{"docter"}, "'doctor'"},
             {{"capabilites"}, "'capabilities'"},
             {{"cach"}, "'cache'"},
             {{"cahce", "ls"}, "'cache'"},
             {{"cache", "verfy"}, "'verify'"},
             {{"cache", "stat"}, "'stats'"},
             {{"cache", "pth"}, "'path'"},
             {{"cache", "shwo", "00"}, "'show'"},
             {{"--versoin"}, "'--version'"},
             {{"--hepl"}, "'--help'"},
             {{"doctor", "--jsn"}, "--jsn: did you mean '--json'?"},
             {{"cache", "ls", "--cache-dirr", "x"}, "'--cache-dir'"},
             {{"cache", "ls", "--cachedir=x"}, "--cachedir=x: did you mean '--cache-dir'?"},
             {{"prewarm", "--shape", "x"}, "'--shapes'"},
             {{"prewarm", "--shapes", "x", "--arhc", "sm_90a"}, "'--arch'"},
             {{"prewarm", "--shapes", "x", "--job=4"}, "'--jobs'"},
             {{"explain", "--num-q-hed", "3"}, "'--num-q-heads'"},
             {{"explain", "--num_kv_heads", "3"}, "'--num-kv-heads'"},
             {with_shape({"explain"}, {"--kv-dtpye", "int8"}), "'--kv-dtype'"},
             {with_shape({"explain"}, {"--batchs=3"}), "'--batch'"},
             {with_shape({"explain"}, {"--seqlen", "7"}), "'--seq-len'"},
             {with_shape({"run"}, {"--chek"}), "'--check'"},
             {{"bench", "--gird", "1x1"}, "'--grid'"},
             {{"capabilities", "--arc", "sm_90a"}, "'--arch'"},
             {{"frobnicate"}, nullptr},
             {{"--frobnicate"}, nullptr},
             {{"cache", "frobnicate"}, nullptr},
             {{"doctor", "--frobnicate", "prewarm"}, nullptr},
             {{std::string(100000, 'x')}, nullptr},
         }) {
        ProcessResult const result = shell.run(row.arguments);
        INFO(row.arguments.back().substr(0, 100) << ": " << result.err.substr(0, 1000));
        CHECK(result.code == 2);
        CHECK(result.out.empty());
        CHECK(contains(result.err, row.meant != nullptr ? row.meant : "xpected"));
        CHECK(contains(result.err, "did you mean") == (row.meant != nullptr));
    }
}

TEST_CASE("with closed standard streams nothing is printed into an entry", "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    for (char const* closed : {">&- 2>&-", "<&- >&- 2>&-", "2>&-"}) {
        INFO(closed);
        std::string const other = shell.folder() + "/cache " + closed;
        std::string const command =
            std::string("exec ") + XQAJIT + " prewarm --shapes " + list + " --arch sm_90a --cache-dir '" + other + "' " + closed;
        CHECK(shell.run_program({"/bin/sh", "-c", command}).code == 0);
        json const verified = shell.document({"cache", "verify", "--cache-dir", other});
        CHECK(verified["summary"]["ok"] == 2);
    }
}

TEST_CASE("a switch of a shape honours its value", "[cli]") {
    Shell shell;
    struct Row {
        char const* flag;
        bool on;
    };
    for (Row const row : {Row{"--sinks", true}, Row{"--sinks=true", true}, Row{"--sinks=1", true}, Row{"--sinks=false", false},
                          Row{"--sinks=0", false}}) {
        INFO(row.flag);
        CHECK(shell.document(with_shape({"explain", "--arch", "sm_90a"}, {row.flag}))["spec"]["has_sinks"] == row.on);
    }
}

TEST_CASE("a name in a shape list cannot steer the terminal", "[cli]") {
    Shell shell;
    std::string const list =
        shell.write("list.json", R"({"version": 1, "shapes": [{"name": "a\u001b[2Jb\u009bc\u007f\n", "q_dtype": "bf16",
        "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64}]})");
    ProcessResult const prewarm = shell.run({"prewarm", "--shapes", list, "--arch", "sm_90a"});
    ProcessResult const explain = shell.run({"explain", "--shapes", list, "--arch", "sm_90a"});
    for (std::string const& text : {prewarm.err, explain.out}) {
        CHECK(contains(text, "a\\x1b[2Jb\\x9bc\\x7f\\x0a"));
        CHECK_FALSE(contains(text, "\x1b"));
        CHECK_FALSE(contains(text, "\x7f"));
    }
}

TEST_CASE("prewarm names the kernel that failed, and exits with 1", "[cli]") {
    Shell shell;
    shell.set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=64");
    shell.set("FAKE_NVRTC_CRASH", "1");
    std::string const list = shell.write("list.json", kList);
    json const report = shell.document({"prewarm", "--shapes", list, "--arch", "sm_90a"}, 1);
    CHECK(report["summary"]["compiled"] == 1);
    CHECK(report["summary"]["failed"] == 1);
    ProcessResult const text = shell.run({"prewarm", "--shapes", list, "--arch", "sm_90a"});
    CHECK(text.code == 1);
    CHECK(contains(text.err, "SIGSEGV"));
    CHECK(contains(text.out, "0 compiled, 1 hits, 1 failed"));
}

TEST_CASE("output that cannot be written is a failure", "[cli]") {
    for (char const* command : {"doctor", "doctor --json", "--help", "--version"}) {
        Result<ProcessResult> const result =
            run_process({"/bin/sh", "-c", std::string(XQAJIT) + " " + command + " >/dev/full"}, "", std::chrono::seconds(120));
        REQUIRE(result.ok());
        INFO(command << ": " << result->err);
        CHECK(result->code == 1);
        CHECK(contains(result->err, "standard output"));
    }
}

TEST_CASE("run and bench without a GPU exit with 3 and the reason", "[cli]") {
    Shell shell;
    shell.set("FAKE_CUDA_DEVICES", "");
    for (char const* command : {"run", "bench"}) {
        ProcessResult const result = shell.run(with_shape({command}));
        CHECK(result.code == 3);
        CHECK(contains(result.err, "no CUDA-capable device"));
        CHECK(result.out.empty());
    }
}

TEST_CASE("run reports time and rates, and a wrong result is a failure", "[cli]") {
    Shell shell;
    std::vector<std::string> const small = {"--batch", "2", "--seq-len", "100", "--page-size", "16"};
    json const timed = shell.document(with_shape({"run"}, small));
    CHECK(timed["schema"] == "xqajit.run/1");
    CHECK(timed["batch"] == 2);
    CHECK(timed["kv_bytes"] == 2 * 100 * 8 * (128 + 128) * 2);
    CHECK(timed["copies"] == 6);  // 800 KiB each, past four times the fake GPU's megabyte of L2
    for (char const* field : {"us", "us_min", "us_max", "gb_per_s", "read_gb_per_s", "percent_of_read", "gpu"})
        CHECK(timed.contains(field));
    CHECK_FALSE(timed.contains("check"));
    CHECK_FALSE(timed.contains("read_reason"));
    CHECK(contains(shell.run(with_shape({"run"}, small)).out, "of a plain read's"));

    // The fake driver computes nothing, so a check that passed would be no check.
    std::vector<std::string> checked = with_shape({"run", "--check"}, small);
    json const wrong = shell.document(checked, 1);
    CHECK(wrong["check"]["ok"] == false);
    CHECK(wrong["check"]["all_blocks"] == 2 * 8);
    ProcessResult const text = shell.run(checked);
    CHECK(text.code == 1);
    CHECK(contains(text.out, "check FAILED"));
    CHECK(contains(text.err, "differs from the reference"));
    CHECK(shell.run(with_shape({"run"}, {"--cross-attention"})).code == 1);
}

TEST_CASE("run of a cached kernel needs no compiler, and says what it could not compare with", "[cli][J14]") {
    Shell shell;
    std::vector<std::string> const arguments = with_shape({"run"}, {"--page-size", "16", "--seq-len", "100"});
    CHECK(shell.run(arguments).code == 0);
    shell.set("XQAJIT_NVRTC_PATH", "/nowhere");
    json const timed = shell.document(arguments);
    CHECK(contains(timed["read_reason"].get<std::string>(), "/nowhere"));
    CHECK_FALSE(timed.contains("percent_of_read"));
    CHECK(contains(shell.run(arguments).out, "no plain read to compare with"));
}

TEST_CASE("doctor and capabilities print what the documents say", "[cli]") {
    Shell shell;
    json const doctor = shell.document({"doctor"});
    std::string const text = shell.run({"doctor"}).out;
    for (json const& setting : doctor["settings"]) CHECK(contains(text, setting["name"].get<std::string>()));
    CHECK(contains(text, "sm_90a"));
    CHECK(contains(text, FAKE_NVRTC));
    json const capabilities = shell.document({"capabilities", "--arch", "sm_90a"});
    CHECK(capabilities["families"].size() == 4);
    std::string const table = shell.run({"capabilities"}).out;
    CHECK(contains(table, "not built"));
    CHECK(contains(table, "static, balanced, invariant"));
}

}  // namespace xqajit
