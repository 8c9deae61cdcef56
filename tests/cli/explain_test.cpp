#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

TEST_CASE("explain: one shape, a list, and one that nobody serves", "[cli]") {
    Shell shell;
    json const one = shell.document(
        with_shape({"explain", "--arch", "sm_86", "--batch", "3", "--seq-len", "777"}, {"--sinks", "--softcap", "30"}));
    CHECK(one["schema"] == "xqajit.explain/1");
    CHECK(one["arch"]["target"] == "sm_86");
    CHECK(one["launch"]["batch"] == 3);
    CHECK(one["launch"]["seq_len"] == 777);
    CHECK(one["spec"]["has_sinks"] == true);
    CHECK(one["params"]["softcap"] == 30);
    CHECK(shell.document(with_shape({"explain"}))["arch"]["target"] == "sm_90a");  // the GPU's

    json const list = shell.document({"explain", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"});
    CHECK(list["shapes"].size() == 3);
    CHECK(list["shapes"][0]["name"] == "a");

    ProcessResult const text = shell.run(with_shape({"explain", "--arch", "sm_90a"}));
    CHECK(text.code == 0);
    for (char const* part :
         {"gmma", "choice.gmma", "balanced", "mmha", "macros", "XQAJIT_HEAD_DIM=128", "workspace", "mla.not_built"})
        CHECK(contains(text.out, part));
}

TEST_CASE("explain prints why a shape or a launch is refused, and exits as prepare or run would", "[cli]") {
    Shell shell;
    struct Row {
        std::vector<std::string> arguments;
        int code;
        char const* printed;
        bool shape;  // refused, rather than its launch
    };
    for (Row const& row : std::vector<Row>{
             {{"--cross-attention"}, 1, "common.cross_attention", true},
             {{"--division", "balanced", "--nb-sub-seq", "4"}, 1, "common.nb_sub_seq", true},
             {{"--division", "invariant", "--nb-sub-seq", "4"}, 1, "common.nb_sub_seq", true},
             {{"--batch", "65536", "--nb-sub-seq", "6000"}, 2, "2147483647 blocks", false},
             {{"--batch", "65536", "--seq-len", "2147483647", "--division", "invariant"}, 2, "2147483647 blocks", false},
         }) {
        std::vector<std::string> const arguments = with_shape({"explain", "--arch", "sm_90a"}, row.arguments);
        ProcessResult const text = shell.run(arguments);
        INFO(text.out << text.err);
        CHECK(text.code == row.code);
        CHECK(contains(text.out, row.printed));
        json const document = shell.document(arguments, row.code);
        CHECK(document.contains("error") == row.shape);
        CHECK(contains((row.shape ? document : document["launch"])["error"]["message"].get<std::string>(), row.printed));
    }
    std::string const list = shell.write("list.json", R"({"version": 1, "shapes": [{"q_dtype": "bf16", "num_q_heads": 32,
        "num_kv_heads": 8, "head_dim": 64, "nb_sub_seq": 4, "division": ["static", "balanced", "invariant"]}]})");
    CHECK(shell.document({"explain", "--shapes", list, "--arch", "sm_90a"}, 1)["shapes"].size() == 3);
}

TEST_CASE("the models' list is explained without a compiler or a GPU", "[cli][J14]") {
    Shell shell;
    shell.set("XQAJIT_NVRTC_PATH", "/nowhere");
    shell.set("FAKE_CUDA_DEVICES", "");
    json const list = shell.document({"explain", "--shapes", MODELS, "--arch", "sm_90a"});
    CHECK(list["shapes"].size() > 50);
    for (json const& shape : list["shapes"]) {
        CHECK_FALSE(shape.contains("error"));
        CHECK(shape["key"]["compiler"].is_null());
    }
    CHECK(shell.run({"doctor"}).code == 0);
    CHECK(shell.run({"cache", "ls"}).code == 0);
    CHECK(shell.run(with_shape({"explain"})).code == 3);  // no arch is named, and none is here
    ProcessResult const prewarm = shell.run({"prewarm", "--shapes", shell.write("list.json", kList), "--arch", "sm_90a"});
    CHECK(prewarm.code == 3);
    CHECK(contains(prewarm.err, "/nowhere"));
}

}  // namespace xqajit
