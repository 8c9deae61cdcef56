// xqajit cache stats and explain-miss: what was counted, and why a kernel is missing.
#include <filesystem>

#include "catch.h"
#include "shell.h"

namespace xqajit {

using nlohmann::json;
using namespace testing;

namespace {

std::string prewarmed(Shell const& shell, char const* arch) {
    std::string list = shell.write("list.json", kList);
    REQUIRE(shell.run({"prewarm", "--shapes", list, "--arch", arch}).code == 0);
    return list;
}

}  // namespace

TEST_CASE("cache stats has what all processes counted, as text, JSON and for Prometheus", "[cli][metrics]") {
    Shell shell;
    CHECK(shell.document({"cache", "stats"})["metrics"]["misses"] == 0);
    prewarmed(shell, "sm_90a");
    prewarmed(shell, "sm_90a");
    json const stats = shell.document({"cache", "stats"});
    CHECK(stats["schema"] == "xqajit.cache.stats/1");
    json const& metrics = stats["metrics"];
    CHECK(metrics["schema"] == "xqajit.metrics/1");
    CHECK(metrics["scope"] == "cache");
    CHECK(metrics["compiles"] == 2);
    CHECK(metrics["misses"] == 2);
    CHECK(metrics["hits"]["user"] == 2);
    ProcessResult const text = shell.run({"cache", "stats"});
    CHECK(text.code == 0);
    CHECK(contains(text.out, "counted: hits memory 0, user 2, system 0, bundle 0, remote 0, 2 misses, 2 compiles in "));
    ProcessResult const exposition = shell.run({"cache", "stats", "--prometheus"});
    CHECK(exposition.code == 0);
    CHECK(exposition.err.empty());
    CHECK(exposition.out.starts_with("# HELP xqajit_hits_total "));
    CHECK(exposition.out.ends_with("\n"));
    CHECK_FALSE(exposition.out.ends_with("\n\n"));
    CHECK(contains(exposition.out, "\nxqajit_hits_total{layer=\"user\"} 2\n"));
    CHECK(contains(exposition.out, "\nxqajit_compiles_total 2\n"));
    CHECK(contains(exposition.out, "\nxqajit_phase_seconds_count{phase=\"compile\"} 2\n"));
    CHECK(shell.run({"cache", "stats", "--prometheus", "--json"}).code == 2);

    shell.write("cache/totals.json", "{");
    json const damaged = shell.document({"cache", "stats"}, 1);
    CHECK(damaged["metrics"].is_null());
    CHECK(damaged["summary"]["entries"] == 2);
    CHECK(contains(shell.run({"cache", "stats"}).err, "totals.json"));
    CHECK(shell.run({"cache", "stats", "--prometheus"}).code == 1);
    prewarmed(shell, "sm_90a");
    CHECK(shell.document({"cache", "stats"})["metrics"]["hits"]["user"] == 2);
}

TEST_CASE("explain-miss names the fields in which a shape's kernel differs from what is cached", "[cli]") {
    Shell shell;
    std::string const list = prewarmed(shell, "sm_90a");
    ProcessResult const hit = shell.run({"cache", "explain-miss", "--shapes", list, "--arch", "sm_90a"});
    CHECK(hit.code == 0);
    CHECK(contains(hit.out, ": hit\n"));
    CHECK_FALSE(contains(hit.out, "differs"));

    std::vector<std::string> const shape = {"--q-dtype",  "bf16", "--num-q-heads", "32", "--num-kv-heads", "8",
                                            "--head-dim", "128",  "--page-size",   "32", "--arch",         "sm_90a"};
    std::vector<std::string> arguments = {"cache", "explain-miss"};
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    ProcessResult const miss = shell.run(arguments);
    CHECK(miss.code == 0);
    CHECK(contains(miss.out, ": miss\n"));
    CHECK(contains(miss.out, "XQAJIT_PAGE_SIZE  32      64\n"));
    json const document = shell.document(arguments);
    CHECK(document["schema"] == "xqajit.cache.explain-miss/1");
    CHECK(document["kernels"][0]["nearest"][0]["differences"] ==
          json({{{"field", "XQAJIT_PAGE_SIZE"}, {"wanted", "32"}, {"found", "64"}}}));

    // A key of a log: of an entry, of a shape of a list, of neither.
    json const entries = shell.document({"cache", "ls"})["entries"];
    bool const small_first = entries[0]["metadata"]["macros"]["XQAJIT_HEAD_DIM"] == "64";
    std::string const key = entries[small_first ? 0 : 1]["key"];  // a's alone: the other is b's too
    CHECK(contains(shell.run({"cache", "explain-miss", key.substr(0, 12)}).out, key + ": hit\n"));
    json const of_list = shell.document({"cache", "explain-miss", key, "--shapes", list, "--arch", "sm_90a"});
    REQUIRE(of_list["shapes"].size() == 1);
    CHECK(of_list["shapes"][0]["kernels"][0]["key"] == key);
    CHECK(of_list["shapes"][0]["name"] == "a");
    ProcessResult const stranger = shell.run({"cache", "explain-miss", "00000000000000"});
    CHECK(stranger.code == 2);
    CHECK(contains(stranger.err, "give the shape"));
    CHECK(shell.run({"cache", "explain-miss", "00000000000000", "--shapes", list, "--arch", "sm_90a"}).code == 2);
}

TEST_CASE("explain-miss exits as what it met: no shape, a refused one, a damaged entry", "[cli]") {
    Shell shell;
    prewarmed(shell, "sm_90a");
    ProcessResult const nothing = shell.run({"cache", "explain-miss"});
    CHECK(nothing.code == 2);
    CHECK(contains(nothing.err, "KEY, --shapes or shape flags"));
    std::string const mixed = shell.write("mixed.json", R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_q_heads": 32,
      "num_kv_heads": 8, "head_dim": 128, "page_size": 64}, "shapes": [{"name": "no", "cross_attention": 1}, {"name": "yes"}]})");
    ProcessResult const refused = shell.run({"cache", "explain-miss", "--shapes", mixed, "--arch", "sm_90a"});
    CHECK(refused.code == 1);
    CHECK(contains(refused.err, "no: "));
    CHECK(contains(refused.err, "common.cross_attention"));
    CHECK(contains(refused.out, ": hit\n"));

    std::string const list = shell.write("list.json", kList);
    json const entries = shell.document({"cache", "ls"})["entries"];
    for (json const& entry : entries) std::filesystem::resize_file(entry["path"].get<std::string>(), 90);
    ProcessResult const damaged = shell.run({"cache", "explain-miss", "--shapes", list, "--arch", "sm_90a"});
    CHECK(damaged.code == 1);
    CHECK(contains(damaged.out, ": unusable: "));
    CHECK(contains(damaged.out, "the cache has no entry"));
}

}  // namespace xqajit
