// XQAJIT_PERF_GATE=reference: a shape of a tensor-core kernel has a second one, for the launches that the reference would leave to it.
#include <map>
#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

json prewarm(Service& service) {
    std::string const list = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "page_size": 64}, "shapes": [
      {"name": "a", "num_q_heads": 32, "head_dim": 128},
      {"name": "b", "num_q_heads": 32, "head_dim": 64},
      {"name": "c", "num_q_heads": 8, "head_dim": 80}]})";
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    Service::PrewarmReport const report = must(service.prewarm(list, options));
    require_ok(report.status);
    return json::parse(report.json);
}

}  // namespace

TEST_CASE("the perf gate decides at each launch which of the two kernels runs", "[service]") {
    struct Row {
        char const* what;
        char const* gate;
        char const* forced;
        std::uint32_t batch, pages;  // of 64 tokens
        bool tensor_cores;
    };
    // 8 KV heads: batch x 8 x parts of 128 tokens x 4 must reach 132 SMs.
    for (Row const& row :
         {Row{"off", "off", "", 1, 1, true}, Row{"too small", "reference", "", 1, 1, false},
          Row{"long enough", "reference", "", 1, 10, true}, Row{"a part too short", "reference", "", 1, 9, false},
          Row{"batch enough", "reference", "", 5, 1, true}, Row{"one request too few", "reference", "", 4, 1, false},
          Row{"hmma forced", "reference", "hmma", 1, 1, true}, Row{"mmha forced", "reference", "mmha", 5, 64, false}}) {
        INFO(row.what);
        World world;
        world.enter(0);
        world.set("XQAJIT_PERF_GATE", row.gate);
        world.set("XQAJIT_FORCE_KERNEL", row.forced);
        auto const service = world.service();
        Launch launch(plain_params(), row.batch, row.pages);
        launch.add_workspace(*service);
        require_ok(service->run(launch.params, launch.args, nullptr));
        FakeCudaLaunch const launched = world.cuda().last_launch();
        CHECK((launched.dynamic_smem > 0) == row.tensor_cores);
        CHECK((launched.block[0] > device::kMmhaThreads) == row.tensor_cores);
        bool const both = row.gate == std::string("reference") && *row.forced == '\0';
        CHECK(world.compiles() == (both ? 2 : 1));
    }
}

TEST_CASE("launches on both sides of the perf gate are warm after one prepare, and go into a graph", "[service]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_PERF_GATE", "reference");
    auto const service = world.service();
    Launch small(plain_params(), 1, 1), large(plain_params(), 8);
    large.add_workspace(*service);
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 2);
    world.cuda().reset_calls();
    std::vector<CUfunction> functions;
    for (Launch const* launch : {&small, &large, &small}) {
        require_ok(service->run(launch->params, launch->args, nullptr));
        functions.push_back(world.cuda().last_launch().function);
    }
    CHECK(functions[0] != functions[1]);
    CHECK(functions[0] == functions[2]);
    CHECK(world.cuda().calls("cuModuleLoadDataEx") == 0);
    driver::Stream const stream = must(driver::Stream::create());
    for (Launch const* launch : {&small, &large}) {
        driver::Graph const graph =
            must(driver::Graph::capture(stream.get(), [&] { return service->run(launch->params, launch->args, stream.get()); }));
        require_ok(graph.launch(stream.get()));
        CHECK(world.cuda().last_launch().function == functions[launch == &small ? 0 : 1]);
    }
    CHECK(world.compiles() == 2);
    CHECK(service->stats().launches == 5);
}

TEST_CASE("with the perf gate a workspace serves both kernels that may run", "[service][C14]") {
    World world;
    world.enter(0);
    struct Row {
        char const* what;
        void (*edit)(XQAParams&);
    };
    bool tensor_cores_need_more = false, mmha_needs_more = false;
    for (Row const& row : {Row{"plain", [](XQAParams&) {}},
                           {"small heads", [](XQAParams& p) { p.head_dim = 32; }},
                           {"one KV head", [](XQAParams& p) { p.num_q_heads = 4, p.num_kv_heads = 1; }},
                           {"a large group", [](XQAParams& p) { p.num_q_heads = 64, p.num_kv_heads = 1; }},
                           {"invariant", [](XQAParams& p) { p.division = XQAJIT_DIVISION_INVARIANT; }},
                           {"static", [](XQAParams& p) { p.division = XQAJIT_DIVISION_STATIC; }}})
        for (std::uint32_t const batch : {1u, 4u, 64u}) {
            INFO(row.what << ", batch " << batch);
            XQAParams params = plain_params();
            row.edit(params);
            auto const size_with = [&](char const* variable, char const* value) {
                World::set(variable, value);
                std::uint64_t const bytes = must(world.service()->workspace_size(params, batch, 64 * 64));
                World::set(variable, "");
                return bytes;
            };
            std::uint64_t const tensor_cores = size_with("XQAJIT_FORCE_KERNEL", "gmma,hmma");
            std::uint64_t const mmha = size_with("XQAJIT_FORCE_KERNEL", "mmha");
            CHECK(size_with("XQAJIT_PERF_GATE", "off") == tensor_cores);
            CHECK(size_with("XQAJIT_PERF_GATE", "reference") == std::max(tensor_cores, mmha));
            tensor_cores_need_more = tensor_cores_need_more || tensor_cores > mmha;
            mmha_needs_more = mmha_needs_more || mmha > tensor_cores;
        }
    CHECK(tensor_cores_need_more);
    CHECK(mmha_needs_more);
}

TEST_CASE("with the perf gate prewarm compiles both kernels that launches of a shape may run", "[service]") {
    World world;
    world.set("XQAJIT_PERF_GATE", "reference");
    json const report = prewarm(*world.service());
    CHECK(report["summary"]["entries"] == 3);
    CHECK(report["summary"]["kernels"] == 5);
    CHECK(report["summary"]["compiled"] == 5);
    std::map<std::string, std::vector<std::string>> families;  // of the first name
    for (json const& kernel : report["kernels"]) families[kernel["names"].dump()].push_back(kernel["family"]);
    CHECK(families == std::map<std::string, std::vector<std::string>>{
                          {"[\"a\"]", {"gmma", "mmha"}}, {"[\"b\"]", {"gmma", "mmha"}}, {"[\"c\"]", {"mmha"}}});
    CHECK(prewarm(*world.service())["summary"]["hits"] == 5);
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    CHECK(world.compiles() == 5);
}

TEST_CASE("explain shows the kernel and the launch that the perf gate leaves, and what it changes", "[service]") {
    struct Row {
        char const* what;
        char const* gate;
        char const* forced;
        XQAParams params;
        std::uint32_t batch;
        bool passes;
        char const* launched;
        char const* effect;  // null: none is told
    };
    World world;
    XQAParams mha = plain_params();
    mha.num_q_heads = mha.num_kv_heads;
    XQAParams invariant = plain_params();  // a request's kernel must not depend on its neighbours
    invariant.division = XQAJIT_DIVISION_INVARIANT;
    for (Row const& row :
         {Row{"off", "off", "", plain_params(), 1, false, "gmma", nullptr},
          Row{"below", "reference", "", plain_params(), 1, false, "mmha", "mmha runs at this batch and length"},
          Row{"above", "reference", "", plain_params(), 5, true, "gmma", "none at this batch and length"},
          Row{"mmha's own", "reference", "", mha, 1, false, "mmha", "none: it judges the choice of hmma and gmma, not mmha"},
          Row{"invariant", "reference", "", invariant, 1, true, "gmma", "none at this batch and length"},
          Row{"forced", "reference", "hmma", plain_params(), 1, false, "hmma", "none: XQAJIT_FORCE_KERNEL decides"}}) {
        INFO(row.what);
        world.set("XQAJIT_PERF_GATE", row.gate);
        world.set("XQAJIT_FORCE_KERNEL", row.forced);
        world.enter(0);
        auto const service = world.service();
        json const document = json::parse(must(service->explain(row.params, nullptr, row.batch, 256)));
        CHECK(document["perf_gate"]["setting"] == row.gate);
        if (row.params.num_q_heads == plain_params().num_q_heads) CHECK(document["perf_gate"]["passes"] == row.passes);
        CHECK(document["perf_gate"].value("effect", "") == (row.effect != nullptr ? row.effect : ""));
        CHECK(document["launch"]["family"] == row.launched);
        CHECK(document["spec"]["family"] == row.launched);  // and so macros, key and image
        CHECK((document["launch"]["plan"]["dynamic_smem"] != 0) == (row.launched != std::string("mmha")));
        CHECK(document["launch"]["workspace_size"] == must(service->workspace_size(row.params, row.batch, 256)));
    }
}

}  // namespace xqajit
