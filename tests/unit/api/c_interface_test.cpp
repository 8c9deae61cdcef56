#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "driver/device_memory.h"
#include "xqajit/xqajit.h"

namespace {

struct Handle {
    Handle() { REQUIRE(xqajit_create(nullptr, &service) == XQAJIT_OK); }
    ~Handle() { xqajit_destroy(service); }
    xqajit_service* service = nullptr;
};

xqajit_params plain_params() {
    xqajit_params params = XQAJIT_PARAMS_INIT;
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 32;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.page_size = 64;
    return params;
}

bool last_error_has(std::string const& part) { return std::string(xqajit_last_error()).find(part) != std::string::npos; }

}  // namespace

TEST_CASE("versions and status names", "[api]") {
    CHECK(std::string(xqajit_version()) == "0.1.0");
    for (int status = XQAJIT_OK; status <= XQAJIT_INTERRUPTED; ++status)
        CHECK(std::strlen(xqajit_status_name(static_cast<xqajit_status>(status))) > 1);
    CHECK(xqajit_status_name(static_cast<xqajit_status>(99)) != nullptr);
    xqajit_free(nullptr);
    xqajit_destroy(nullptr);
}

TEST_CASE("a null pointer is refused by name, by every function", "[api]") {
    Handle const handle;
    xqajit_service* const s = handle.service;
    xqajit_params params = plain_params();
    xqajit_run_args args = XQAJIT_RUN_ARGS_INIT;
    xqajit_gc_options gc = XQAJIT_GC_OPTIONS_INIT;
    std::uint64_t bytes = 0;
    char* text = nullptr;
    struct Row {
        char const* named;
        xqajit_status status;
    };
    auto const refused = [&](char const* named, xqajit_status status) {
        INFO(named);
        CHECK(status == XQAJIT_INVALID_ARGUMENT);
        CHECK(last_error_has(std::string(named) + " is null"));
    };
    refused("service", xqajit_create(nullptr, nullptr));
    refused("service", xqajit_prepare(nullptr, &params));
    refused("params", xqajit_prepare(s, nullptr));
    refused("service", xqajit_prepare_async(nullptr, &params));
    refused("params", xqajit_prepare_async(s, nullptr));
    refused("service", xqajit_prepare_wait(nullptr, &params, 0));
    refused("params", xqajit_prepare_wait(s, nullptr, 0));
    refused("service", xqajit_workspace_size(nullptr, &params, 1, 1, &bytes));
    refused("params", xqajit_workspace_size(s, nullptr, 1, 1, &bytes));
    refused("bytes", xqajit_workspace_size(s, &params, 1, 1, nullptr));
    refused("service", xqajit_workspace_init(nullptr, &bytes, 1, nullptr));
    refused("workspace", xqajit_workspace_init(s, nullptr, 1, nullptr));
    refused("service", xqajit_workspace_release(nullptr, &bytes));
    refused("service", xqajit_run(nullptr, &params, &args, nullptr));
    refused("params", xqajit_run(s, nullptr, &args, nullptr));
    refused("args", xqajit_run(s, &params, nullptr, nullptr));
    refused("service", xqajit_supports(nullptr, &params, "sm_90a"));
    refused("params", xqajit_supports(s, nullptr, "sm_90a"));
    refused("service", xqajit_capabilities(nullptr, "sm_90a", &text));
    refused("json", xqajit_capabilities(s, "sm_90a", nullptr));
    refused("service", xqajit_explain(nullptr, &params, "sm_90a", 1, 1, &text));
    refused("params", xqajit_explain(s, nullptr, "sm_90a", 1, 1, &text));
    refused("json", xqajit_explain(s, &params, "sm_90a", 1, 1, nullptr));
    refused("service", xqajit_prewarm(nullptr, "{}", nullptr, &text));
    refused("shapes", xqajit_prewarm(s, nullptr, nullptr, &text));
    refused("service", xqajit_parse_shapes(nullptr, "{}", &text));
    refused("shapes", xqajit_parse_shapes(s, nullptr, &text));
    refused("json", xqajit_parse_shapes(s, "{}", nullptr));
    refused("json", xqajit_params_from_json(nullptr, &params));
    refused("params", xqajit_params_from_json("{}", nullptr));
    refused("service", xqajit_cache_list(nullptr, &text));
    refused("json", xqajit_cache_list(s, nullptr));
    refused("service", xqajit_cache_show(nullptr, "a", &text));
    refused("key_prefix", xqajit_cache_show(s, nullptr, &text));
    refused("json", xqajit_cache_show(s, "a", nullptr));
    refused("service", xqajit_cache_verify(nullptr, &text));
    refused("json", xqajit_cache_verify(s, nullptr));
    refused("service", xqajit_cache_gc(nullptr, &gc, &text));
    refused("options", xqajit_cache_gc(s, nullptr, &text));
    refused("json", xqajit_cache_gc(s, &gc, nullptr));
    refused("service", xqajit_cache_export(nullptr, "a", &text));
    refused("file", xqajit_cache_export(s, nullptr, &text));
    refused("json", xqajit_cache_export(s, "a", nullptr));
    refused("service", xqajit_cache_import(nullptr, "a", nullptr, &text));
    refused("file", xqajit_cache_import(s, nullptr, nullptr, &text));
    refused("json", xqajit_cache_import(s, "a", nullptr, nullptr));
    refused("service", xqajit_cache_show_bundle(nullptr, "a", &text));
    refused("file", xqajit_cache_show_bundle(s, nullptr, &text));
    refused("json", xqajit_cache_show_bundle(s, "a", nullptr));
    refused("service", xqajit_cache_explain_miss(nullptr, "a", &params, "sm_90a", &text));
    refused("json", xqajit_cache_explain_miss(s, "a", &params, "sm_90a", nullptr));
    refused("service", xqajit_cache_path(nullptr, &text));
    refused("json", xqajit_cache_path(s, nullptr));
    refused("service", xqajit_doctor(nullptr, &text));
    refused("json", xqajit_doctor(s, nullptr));
    refused("service", xqajit_get_stats(nullptr, nullptr));
    refused("stats", xqajit_get_stats(s, nullptr));
    refused("service", xqajit_metrics(nullptr, XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON, &text));
    refused("text", xqajit_metrics(s, XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON, nullptr));
    CHECK(text == nullptr);
}

TEST_CASE("a shape that an older caller's struct cannot hold is refused by the field's name", "[api]") {
    std::string const shape = R"({"q_dtype": "bf16", "num_q_heads": 16, "num_kv_heads": 1, )";
    struct Row {
        char const* rest;
        std::size_t size;
        char const* named;  // null: it fits
    };
    for (Row const& row : {Row{R"("head_dim": 64})", offsetof(xqajit_params, head_dim_v), nullptr},
                           Row{R"("head_dim": 64, "page_size": 16})", offsetof(xqajit_params, page_size), "page_size is 16"},
                           Row{R"("head_dim": 64, "page_size": 16})", offsetof(xqajit_params, beam_width), nullptr},
                           Row{R"("head_dim": 64, "sinks": 1, "lse": 1})", offsetof(xqajit_params, sinks), "sinks is 1"},
                           Row{R"("head_dim": 64, "qk_scale": 0.5})", offsetof(xqajit_params, qk_scale), "qk_scale is 0.5"},
                           Row{R"("head_dim": 576, "mla": 1, "qk_scale": 1})", offsetof(xqajit_params, head_dim_v), "mla is 1"},
                           Row{R"("head_dim": 64, "position": "yarn"})", offsetof(xqajit_params, position), "position is yarn"}}) {
        INFO(row.rest << " in " << row.size);
        xqajit_params params{};
        params.struct_size = static_cast<std::uint32_t>(row.size);
        xqajit_status const status = xqajit_params_from_json((shape + row.rest).c_str(), &params);
        CHECK(status == (row.named == nullptr ? XQAJIT_OK : XQAJIT_INVALID_ARGUMENT));
        if (row.named != nullptr) CHECK(last_error_has(row.named));
        CHECK(params.struct_size == row.size);
    }
}

TEST_CASE("batch and lengths have the bounds that the header gives, in every call that takes them", "[api]") {
    auto const context = xqajit::driver::GpuContext::open(0);
    REQUIRE(context.ok());
    Handle const handle;
    xqajit_params paged = plain_params();
    xqajit_params contiguous = plain_params();
    paged.division = contiguous.division = XQAJIT_DIVISION_INVARIANT;  // no limit on the length but int32
    contiguous.page_size = 0;
    paged.num_q_heads = paged.num_kv_heads = contiguous.num_q_heads = contiguous.num_kv_heads = 1;
    auto const size = [&](std::uint32_t batch, std::uint64_t len) {
        std::uint64_t bytes = 0;
        return xqajit_workspace_size(handle.service, &paged, batch, len, &bytes);
    };
    auto const explain = [&](std::uint32_t batch, std::uint64_t len) {
        char* json = nullptr;
        xqajit_status const status = xqajit_explain(handle.service, &paged, "sm_90a", batch, len, &json);
        CHECK((json != nullptr) == (status == XQAJIT_OK));
        xqajit_free(json);
        return status;
    };
    // Refused for want of a workspace where its bounds are kept.
    auto const data = xqajit::driver::DeviceBuffer::allocate(1 << 16);
    REQUIRE(data.ok());
    auto const run = [&](xqajit_params const& params, std::uint32_t batch, std::uint64_t capacity, std::uint64_t max_len) {
        xqajit_run_args args = XQAJIT_RUN_ARGS_INIT;
        args.batch = batch;
        args.max_pages = params.page_size != 0 ? 0xffffffffu : 0;
        args.max_len = max_len;
        args.capacity = capacity;
        args.q = args.k = args.v = args.out = data->as();
        args.seq_lens = data->as<std::int32_t>();
        args.page_table = params.page_size != 0 ? data->as<std::int32_t>() : nullptr;
        return xqajit_run(handle.service, &params, &args, nullptr);
    };
    constexpr std::uint64_t kMostTokens = 0x7fffffff;
    struct Row {
        char const* named;
        std::uint64_t most;
        std::function<xqajit_status(std::uint64_t)> call;
        bool runs;  // so that the most is refused too, for another reason
    };
    for (Row const& row : std::vector<Row>{
             {"max_batch", 65536, [&](auto n) { return size(static_cast<std::uint32_t>(n), 64); }, false},
             {"max_len", kMostTokens, [&](auto n) { return size(1, n); }, false},
             {"batch", 65536, [&](auto n) { return explain(static_cast<std::uint32_t>(n), 64); }, false},
             {"seq_len", kMostTokens, [&](auto n) { return explain(1, n); }, false},
             {"batch", 65536, [&](auto n) { return run(paged, static_cast<std::uint32_t>(n), 0, 1000); }, true},
             {"max_len", kMostTokens, [&](auto n) { return run(paged, 1, 0, n); }, true},
             {"capacity", kMostTokens, [&](auto n) { return run(contiguous, 1, n, 1000); }, true},
         }) {
        INFO(row.named << " " << row.most);
        CHECK(row.call(row.most) == (row.runs ? XQAJIT_INVALID_ARGUMENT : XQAJIT_OK));
        if (row.runs) CHECK(last_error_has("workspace is null"));
        for (std::uint64_t const past : {row.most + 1, std::uint64_t{0xffffffff}}) {
            CHECK(row.call(past) == XQAJIT_INVALID_ARGUMENT);
            CHECK(last_error_has(std::string(row.named) + " is " + std::to_string(past) + ": accepted are 0.." +
                                 std::to_string(row.most)));
        }
        if (row.most == kMostTokens) {
            CHECK(row.call(~std::uint64_t{0}) == XQAJIT_INVALID_ARGUMENT);
            CHECK(last_error_has(std::string(row.named) + " is 18446744073709551615"));
        }
    }
}

TEST_CASE("struct_size is judged, and an older caller's shorter struct works", "[api]") {
    Handle const handle;
    xqajit_params params = plain_params();
    params.struct_size = 0;
    CHECK(xqajit_supports(handle.service, &params, "sm_90a") == XQAJIT_INVALID_ARGUMENT);
    CHECK(last_error_has("struct_size is 0"));
    params.struct_size = sizeof params;
    CHECK(xqajit_supports(handle.service, &params, "sm_90a") == XQAJIT_OK);
    params.struct_size = offsetof(xqajit_params, position);
    params.position = 99;  // past what the caller says it has
    CHECK(xqajit_supports(handle.service, &params, "sm_90a") == XQAJIT_OK);

    struct {
        xqajit_stats stats = XQAJIT_STATS_INIT;
        std::uint64_t behind = 0x5a5a5a5a5a5a5a5au;
    } guarded;
    guarded.stats.struct_size = offsetof(xqajit_stats, launches);
    guarded.stats.launches = 77;
    REQUIRE(xqajit_get_stats(handle.service, &guarded.stats) == XQAJIT_OK);
    CHECK(guarded.stats.struct_size == offsetof(xqajit_stats, launches));
    CHECK(guarded.stats.launches == 77);
    CHECK(guarded.behind == 0x5a5a5a5a5a5a5a5au);
    guarded.stats.struct_size = 3;
    CHECK(xqajit_get_stats(handle.service, &guarded.stats) == XQAJIT_INVALID_ARGUMENT);

    xqajit_params from_json = XQAJIT_PARAMS_INIT;
    from_json.struct_size = 1;
    CHECK(xqajit_params_from_json(R"({"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 1, "head_dim": 64})", &from_json) ==
          XQAJIT_INVALID_ARGUMENT);

    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.struct_size = 5000;
    CHECK(xqajit_prewarm(handle.service, "{}", &options, nullptr) == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("the last error is the thread's own, and outlives a success", "[api]") {
    Handle const handle;
    xqajit_params params = plain_params();
    params.head_dim = 72;
    REQUIRE(xqajit_supports(handle.service, &params, "sm_90a") == XQAJIT_INVALID_ARGUMENT);
    CHECK(last_error_has("head_dim is 72"));
    std::thread([] { CHECK(std::string(xqajit_last_error()).empty()); }).join();
    params.head_dim = 64;
    REQUIRE(xqajit_supports(handle.service, &params, "sm_90a") == XQAJIT_OK);
    CHECK(last_error_has("head_dim is 72"));
}

TEST_CASE("shapes come from JSON as from code", "[api]") {
    Handle const handle;
    xqajit_params params = XQAJIT_PARAMS_INIT;
    REQUIRE(xqajit_params_from_json(
                R"({"q_dtype": "fp16", "kv_dtype": "int8", "num_q_heads": 8, "num_kv_heads": 2, "head_dim": 80})", &params) ==
            XQAJIT_OK);
    CHECK(params.kv_dtype == XQAJIT_DTYPE_INT8);
    CHECK(params.head_dim == 80);
    CHECK(xqajit_params_from_json(R"({"q_dtyp": "fp16"})", &params) == XQAJIT_INVALID_ARGUMENT);
    CHECK(last_error_has("q_dtyp"));
    CHECK(last_error_has("q_dtype"));

    char* text = nullptr;
    REQUIRE(
        xqajit_parse_shapes(
            handle.service,
            R"({"version": 1, "shapes": [{"name": "n", "q_dtype": "bf16", "num_q_heads": [8, 16], "num_kv_heads": 8, "head_dim": 64}]})",
            &text) == XQAJIT_OK);
    std::string const list = text;
    xqajit_free(text);
    CHECK(list.find("xqajit.shapes/1") != std::string::npos);
    CHECK(list.find("\"num_q_heads\": 16") != std::string::npos);
}

TEST_CASE("a bad list is refused whatever is wrong with it", "[api]") {
    Handle const handle;
    std::string const deep = std::string(100, '[') + std::string(100, ']');
    for (std::string const& list :
         {std::string(), std::string("{"), std::string("[]"), std::string("null"), deep,
          std::string(R"({"version": 1, "shapes": []})"), std::string(R"({"version": 2, "shapes": [{}]})")}) {
        INFO(list);
        char* report = nullptr;
        CHECK(xqajit_prewarm(handle.service, list.c_str(), nullptr, &report) == XQAJIT_INVALID_ARGUMENT);
        CHECK(report == nullptr);
    }
}

TEST_CASE("prepare, size, init, run and release through the C interface", "[api]") {
    auto const context = xqajit::driver::GpuContext::open(0);
    REQUIRE(context.ok());
    Handle const handle;
    xqajit_params const params = plain_params();
    REQUIRE(xqajit_prepare_async(handle.service, &params) == XQAJIT_OK);
    REQUIRE(xqajit_prepare_wait(handle.service, &params, 200000) == XQAJIT_OK);
    REQUIRE(xqajit_prepare(handle.service, &params) == XQAJIT_OK);
    std::uint64_t bytes = 0;
    REQUIRE(xqajit_workspace_size(handle.service, &params, 2, 4096, &bytes) == XQAJIT_OK);
    REQUIRE(bytes > 0);
    auto const memory = xqajit::driver::DeviceBuffer::allocate(bytes);
    auto const data = xqajit::driver::DeviceBuffer::allocate(1 << 16);
    REQUIRE(memory.ok());
    REQUIRE(xqajit_workspace_init(handle.service, memory->as(), bytes, nullptr) == XQAJIT_OK);
    xqajit_run_args args = XQAJIT_RUN_ARGS_INIT;
    args.batch = 2;
    args.max_pages = 64;
    args.q = args.k = args.v = args.out = data->as();
    args.page_table = args.seq_lens = data->as<std::int32_t>();
    args.workspace = memory->as();
    args.workspace_size = bytes;
    CHECK(xqajit_run(handle.service, &params, &args, nullptr) == XQAJIT_OK);
    args.workspace_size = bytes - 1;
    CHECK(xqajit_run(handle.service, &params, &args, nullptr) == XQAJIT_INVALID_ARGUMENT);
    CHECK(last_error_has("workspace_size is " + std::to_string(bytes - 1)));
    xqajit_stats stats = XQAJIT_STATS_INIT;
    REQUIRE(xqajit_get_stats(handle.service, &stats) == XQAJIT_OK);
    CHECK(stats.launches == 1);
    CHECK(stats.compiles + stats.disk_hits == 1);
    CHECK(xqajit_workspace_release(handle.service, memory->as()) == XQAJIT_OK);
}
