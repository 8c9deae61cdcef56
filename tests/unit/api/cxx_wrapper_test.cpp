#include "catch.h"
#include "xqajit/xqajit.hpp"

namespace {

constexpr char kShape[] = R"({"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128})";

}  // namespace

TEST_CASE("the wrapper hands documents out as strings", "[api]") {
    xqajit::Service service;
    xqajit_params const params = xqajit::params_from_json(kShape);
    CHECK(service.supports(params, "sm_90a"));
    CHECK(service.explain(params, "sm_90a", 1, 1000).find("xqajit.explain/1") != std::string::npos);
    CHECK(service.cache_explain_miss("", &params, "sm_90a").find("xqajit.cache.explain-miss/1") != std::string::npos);
    CHECK(service.metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON).find("xqajit.metrics/1") != std::string::npos);
    CHECK(service.metrics(XQAJIT_METRICS_CACHE, XQAJIT_METRICS_PROMETHEUS).starts_with("# HELP xqajit_"));
    CHECK(service.capabilities("sm_80").find("xqajit.capabilities/1") != std::string::npos);
    CHECK(service.cache_path().find("xqajit.cache.path/1") != std::string::npos);
    CHECK(service.doctor().find("xqajit.doctor/1") != std::string::npos);
    CHECK(service.stats().launches == 0);
}

TEST_CASE("the wrapper throws the code, the text and the report", "[api]") {
    xqajit::Service service;
    try {
        xqajit::params_from_json("{\"head_dim\": 7}");
        FAIL("no error");
    } catch (xqajit::Error const& error) {
        CHECK(error.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(std::string(error.what()).size() > 10);
        CHECK(error.report().empty());
    }
    xqajit_params params = xqajit::params_from_json(kShape);
    params.head_dim = 7;
    CHECK_THROWS_AS(service.prepare(params), xqajit::Error);
    CHECK_THROWS_AS(service.prepare_async(params), xqajit::Error);
    CHECK_THROWS_AS(service.prepare_wait(params, 0), xqajit::Error);
    params = xqajit::params_from_json(kShape);
    params.cross_attention = 1;
    CHECK_FALSE(service.supports(params, "sm_90a"));
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    std::string const list =
        R"({"version": 1, "shapes": [{"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "cross_attention": 1}]})";
    try {
        service.prewarm(list, options);
        FAIL("no error");
    } catch (xqajit::Error const& error) {
        CHECK(error.code() == XQAJIT_COMPILE_FAILED);
        CHECK(error.report().find("xqajit.prewarm/1") != std::string::npos);
    }
}

TEST_CASE("the wrapper owns one handle, and moves it", "[api]") {
    xqajit::Service first;
    xqajit_service* const handle = first.get();
    xqajit::Service second = std::move(first);
    CHECK(second.get() == handle);
    CHECK(first.get() == nullptr);
    first = std::move(second);
    CHECK(first.get() == handle);
}
