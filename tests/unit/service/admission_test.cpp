// One admission: a shape that one call refuses, every call refuses, for the same reason and whatever the batch.
#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

struct Row {
    char const* what;
    void (*edit)(XQAParams&);
    char const* setting;  // "NAME=value", or null
    char const* rule;     // null: admitted
};

// clang-format off
constexpr Row kRows[] = {
    {"plain", [](XQAParams&) {}, nullptr, nullptr},
    {"static", [](XQAParams& p) { p.division = XQAJIT_DIVISION_STATIC; }, nullptr, nullptr},
    {"static, 4", [](XQAParams& p) { p.division = XQAJIT_DIVISION_STATIC, p.nb_sub_seq = 4; }, nullptr, nullptr},
    {"default, 4", [](XQAParams& p) { p.nb_sub_seq = 4; }, nullptr, nullptr},
    {"invariant", [](XQAParams& p) { p.division = XQAJIT_DIVISION_INVARIANT; }, nullptr, nullptr},
    {"invariant, 4", [](XQAParams& p) { p.division = XQAJIT_DIVISION_INVARIANT, p.nb_sub_seq = 4; }, nullptr, "common.nb_sub_seq"},
    {"balanced", [](XQAParams& p) { p.division = XQAJIT_DIVISION_BALANCED; }, nullptr, nullptr},
    {"balanced, 4", [](XQAParams& p) { p.division = XQAJIT_DIVISION_BALANCED, p.nb_sub_seq = 4; }, nullptr, "common.nb_sub_seq"},
    {"forced balanced", [](XQAParams&) {}, "XQAJIT_DIVISION=balanced", nullptr},
    {"forced balanced, 4", [](XQAParams& p) { p.nb_sub_seq = 4; }, "XQAJIT_DIVISION=balanced", "common.nb_sub_seq"},
    {"forced from balanced to static", [](XQAParams& p) { p.division = XQAJIT_DIVISION_BALANCED; }, "XQAJIT_DIVISION=static", nullptr},
    {"forced invariant, 4", [](XQAParams& p) { p.nb_sub_seq = 4; }, "XQAJIT_DIVISION=invariant", "common.nb_sub_seq"},
    {"invariant, forced 4", [](XQAParams& p) { p.division = XQAJIT_DIVISION_INVARIANT; }, "XQAJIT_NB_SUB_SEQ=4", "common.nb_sub_seq"},
    {"forced 4", [](XQAParams&) {}, "XQAJIT_NB_SUB_SEQ=4", nullptr},
    {"forced fp8 arithmetic", [](XQAParams&) {}, "XQAJIT_NUMERIC=fp8", "common.numeric"},
    {"forced family", [](XQAParams&) {}, "XQAJIT_FORCE_KERNEL=hmma", nullptr},
    {"forced family that the rules leave to another", [](XQAParams& p) { p.num_q_heads = 8; }, "XQAJIT_FORCE_KERNEL=hmma", nullptr},
    {"forced family without MLA", [](XQAParams& p) { p = mla_params(); }, "XQAJIT_FORCE_KERNEL=hmma", "hmma.head_dim"},
    {"forced family without such pages", [](XQAParams& p) { p.page_size = 256; }, "XQAJIT_FORCE_KERNEL=hmma", "hmma.page"},
    {"forced gmma", [](XQAParams&) {}, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced gmma for rows of part lines", [](XQAParams& p) { p.head_dim = p.head_dim_v = 80; }, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced gmma for the smallest rows", [](XQAParams& p) { p.head_dim = p.head_dim_v = 16; }, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced gmma for plain MHA", [](XQAParams& p) { p.num_q_heads = 8; }, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced gmma for a large group", [](XQAParams& p) { p.num_q_heads = 1024; }, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced gmma without so many rows", [](XQAParams& p) { p.num_q_heads = 136, p.head_dim = p.head_dim_v = 48; }, "XQAJIT_FORCE_KERNEL=gmma", "gmma.rows"},
    {"forced family that is not built", [](XQAParams&) {}, "XQAJIT_FORCE_KERNEL=mla", "mla.not_built"},
    {"gated", [](XQAParams&) {}, "XQAJIT_PERF_GATE=reference", nullptr},
    {"gated, cross attention", [](XQAParams& p) { p.cross_attention = 1; }, "XQAJIT_PERF_GATE=reference", "common.cross_attention"},
    {"plain MHA", [](XQAParams& p) { p.num_q_heads = 8; }, nullptr, nullptr},
    {"MLA", [](XQAParams& p) { p = mla_params(); }, nullptr, nullptr},
    {"nvfp4 cache", [](XQAParams& p) { p.kv_dtype = XQAJIT_DTYPE_NVFP4; }, nullptr, "common.nvfp4"},
    {"cross attention", [](XQAParams& p) { p.cross_attention = 1; }, nullptr, "common.cross_attention"},
    {"input_kv", [](XQAParams& p) { p.input_kv = 1; }, nullptr, nullptr},
    {"input_kv with RoPE", [](XQAParams& p) { p.input_kv = 1, p.rope_style = XQAJIT_ROPE_GPTJ; }, nullptr, nullptr},
    {"input_kv of plain MHA", [](XQAParams& p) { p.input_kv = 1, p.num_q_heads = 8; }, nullptr, nullptr},
    {"input_kv of a draft", [](XQAParams& p) { p.input_kv = 1, p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }, nullptr, "gmma.input_kv"},
    {"forced hmma with input_kv", [](XQAParams& p) { p.input_kv = 1; }, "XQAJIT_FORCE_KERNEL=hmma", "hmma.input_kv"},
    {"forced gmma, skip_softmax", [](XQAParams& p) { p.skip_softmax = 1, p.skip_softmax_threshold = 8; }, "XQAJIT_FORCE_KERNEL=gmma", nullptr},
    {"forced hmma, skip_softmax", [](XQAParams& p) { p.skip_softmax = 1; }, "XQAJIT_FORCE_KERNEL=hmma", "hmma.skip_softmax"},
    {"skip_softmax", [](XQAParams& p) { p.skip_softmax = 1; }, nullptr, nullptr},
    {"skip_softmax of large pages", [](XQAParams& p) { p.skip_softmax = 1, p.page_size = 256; }, nullptr, "mmha.skip_softmax"},
};
// clang-format on

// Sets a row's setting for the services made in a scope.
class ScopedSetting {
public:
    explicit ScopedSetting(char const* text) {
        if (text == nullptr) return;
        std::string const assignment = text;
        name_ = assignment.substr(0, assignment.find('='));
        World::set(name_.c_str(), assignment.substr(name_.size() + 1));
    }
    ~ScopedSetting() {
        if (!name_.empty()) World::set(name_.c_str(), "");
    }
    ScopedSetting(ScopedSetting const&) = delete;

private:
    std::string name_;
};

Status prewarmed(Service& service, XQAParams const& params) {
    json const list = {{"version", 1}, {"shapes", {json::parse(to_json(must(normalize(params))))}}};
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    return must(service.prewarm(list.dump(), options)).status;
}

Status explained(Service& service, XQAParams const& params, std::uint32_t batch) {
    json const document = json::parse(must(service.explain(params, "sm_90a", batch, 4096)));
    json const& refused = document.contains("error") ? document : document["launch"];
    return refused.contains("error") ? unsupported(refused["error"]["message"].get<std::string>()) : Status();
}

}  // namespace

TEST_CASE("what one call refuses every call refuses, by the same rule and for any batch", "[service]") {
    World world;
    world.enter(0);
    for (Row const& row : kRows) {
        ScopedSetting const setting(row.setting);
        auto const service = world.service();
        // The same shape but for its run-time fields is loaded already: that must not let a refused one in.
        if (row.setting == nullptr) require_ok(service->prepare(plain_params()));
        XQAParams params = plain_params();
        row.edit(params);
        Launch launch(params, 2);
        if (row.rule == nullptr) launch.add_workspace(*service);
        RunArgs empty = XQAJIT_RUN_ARGS_INIT;
        struct Answer {
            char const* call;
            Status status;
            xqajit_status refused = XQAJIT_UNSUPPORTED;
        };
        for (Answer const& answer : {Answer{"supports", service->supports(params, "sm_90a")},
                                     {"explain", explained(*service, params, 4)},
                                     {"explain, batch 0", explained(*service, params, 0)},
                                     {"workspace_size", service->workspace_size(params, 4, 4096).status()},
                                     {"workspace_size, batch 0", service->workspace_size(params, 0, 4096).status()},
                                     {"run, batch 0", service->run(params, empty, nullptr)},
                                     {"run", service->run(params, launch.args, nullptr)},
                                     {"prepare", service->prepare(params)},
                                     {"run, batch 0 again", service->run(params, empty, nullptr)},
                                     {"prewarm", prewarmed(*service, params), XQAJIT_COMPILE_FAILED}}) {
            INFO(row.what << ": " << answer.call << ": " << answer.status.to_string());
            CHECK(answer.status.code() == (row.rule == nullptr ? XQAJIT_OK : answer.refused));
            if (row.rule != nullptr) CHECK(contains(answer.status.message(), row.rule));
        }
    }
}

TEST_CASE("arguments that are refused are refused for a batch of zero too", "[service][C20]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    for (std::uint32_t const batch : {0u, 2u}) {
        Launch launch(plain_params(), batch);
        launch.args.reserved0 = 1;
        INFO(batch);
        CHECK(service->run(launch.params, launch.args, nullptr).code() == XQAJIT_INVALID_ARGUMENT);
    }
    CHECK(world.compiles() == 0);
}

}  // namespace xqajit
