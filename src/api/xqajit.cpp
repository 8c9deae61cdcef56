// The C interface over Service; cache.cpp has the cache's part.
#include "xqajit/xqajit.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "api/guard.h"
#include "base/json.h"
#include "base/log.h"
#include "params/shape_list.h"
#include "params/versioned.h"
#include "service/service.h"

using namespace xqajit::api;
using xqajit::invalid_argument;
using xqajit::Result;
using xqajit::Service;
using xqajit::Status;

extern "C" {

#define XQAJIT_TEXT2(x) #x
#define XQAJIT_TEXT(x) XQAJIT_TEXT2(x)
char const* xqajit_version(void) {
    return XQAJIT_TEXT(XQAJIT_VERSION_MAJOR) "." XQAJIT_TEXT(XQAJIT_VERSION_MINOR) "." XQAJIT_TEXT(XQAJIT_VERSION_PATCH);
}

char const* xqajit_status_name(xqajit_status status) { return xqajit::status_name(status); }
char const* xqajit_last_error(void) { return last_error.c_str(); }
void xqajit_free(char* text) { std::free(text); }
void xqajit_set_log(xqajit_log_fn log, void* user) { xqajit::log::set_sink(log, user); }

xqajit_status xqajit_create(char const* cache_dir, xqajit_service** service) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        *service = nullptr;
        auto handle = std::make_unique<xqajit_service>();
        Result<std::unique_ptr<Service>> created = Service::create(cache_dir != nullptr ? cache_dir : "");
        if (!created.ok()) return created.status();
        handle->service = std::move(created).value();
        *service = handle.release();
        return {};
    });
}

void xqajit_destroy(xqajit_service* service) {
    guarded([&]() -> Status {
        delete service;
        return {};
    });
}

xqajit_status xqajit_prepare(xqajit_service* service, xqajit_params const* params) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        return service->service->prepare(*params);
    });
}

xqajit_status xqajit_prepare_async(xqajit_service* service, xqajit_params const* params) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        return service->service->prepare_async(*params);
    });
}

xqajit_status xqajit_prepare_wait(xqajit_service* service, xqajit_params const* params, uint32_t timeout_ms) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        return service->service->prepare_wait(*params, timeout_ms);
    });
}

xqajit_status xqajit_workspace_size(xqajit_service* service, xqajit_params const* params, uint32_t max_batch, uint64_t max_len,
                                    uint64_t* bytes) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        XQAJIT_REQUIRE(bytes);
        Result<std::uint64_t> const size = service->service->workspace_size(*params, max_batch, max_len);
        if (!size.ok()) return size.status();
        *bytes = *size;
        return {};
    });
}

xqajit_status xqajit_workspace_init(xqajit_service* service, void* workspace, uint64_t bytes, xqajit_stream stream) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        return service->service->workspace_init(workspace, bytes, stream);
    });
}

xqajit_status xqajit_workspace_release(xqajit_service* service, void* workspace) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        return service->service->workspace_release(workspace);
    });
}

xqajit_status xqajit_run(xqajit_service* service, xqajit_params const* params, xqajit_run_args const* args, xqajit_stream stream) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        XQAJIT_REQUIRE(args);
        return service->service->run(*params, *args, stream);
    });
}

xqajit_status xqajit_supports(xqajit_service* service, xqajit_params const* params, char const* arch) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        return service->service->supports(*params, arch);
    });
}

xqajit_status xqajit_capabilities(xqajit_service* service, char const* arch, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->capabilities(arch), json);
    });
}

xqajit_status xqajit_explain(xqajit_service* service, xqajit_params const* params, char const* arch, uint32_t batch,
                             uint64_t seq_len, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(params);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->explain(*params, arch, batch, seq_len), json);
    });
}

xqajit_status xqajit_prewarm(xqajit_service* service, char const* shapes, xqajit_prewarm_options const* options,
                             char** report_json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(shapes);
        xqajit_prewarm_options known = XQAJIT_PREWARM_OPTIONS_INIT;
        if (options != nullptr) {
            XQAJIT_RETURN_IF_ERROR(xqajit::copy_versioned(*options, offsetof(xqajit_prewarm_options, jobs), known));
        }
        Result<Service::PrewarmReport> const prewarmed = service->service->prewarm(shapes, known);
        if (!prewarmed.ok()) return prewarmed.status();
        if (report_json != nullptr) XQAJIT_RETURN_IF_ERROR(hand_out(prewarmed->json, report_json));
        return prewarmed->status;
    });
}

xqajit_status xqajit_parse_shapes(xqajit_service* service, char const* shapes, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(shapes);
        XQAJIT_REQUIRE(json);
        Result<std::vector<xqajit::ShapeEntry>> const entries = xqajit::parse_shape_list(shapes);
        if (!entries.ok()) return entries.status();
        nlohmann::ordered_json list = nlohmann::ordered_json::array();
        for (xqajit::ShapeEntry const& entry : *entries) {
            list.push_back({{"name", entry.name}, {"params", nlohmann::ordered_json::parse(xqajit::to_json(entry.params))}});
        }
        return hand_out(xqajit::to_text({{"schema", "xqajit.shapes/1"}, {"entries", std::move(list)}}, 1), json);
    });
}

xqajit_status xqajit_params_from_json(char const* json, xqajit_params* params) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(json);
        XQAJIT_REQUIRE(params);
        Result<xqajit::ShapeEntry> const shape = xqajit::parse_shape(json);
        if (!shape.ok()) return shape.status();
        xqajit_params known{};
        XQAJIT_RETURN_IF_ERROR(xqajit::copy_versioned(*params, xqajit::kParamsMinimumSize, known));  // judges struct_size
        XQAJIT_RETURN_IF_ERROR(xqajit::check_fits(shape->params, params->struct_size));
        return hand_out_struct(shape->params, xqajit::kParamsMinimumSize, params);
    });
}

xqajit_status xqajit_doctor(xqajit_service* service, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->doctor(), json);
    });
}

xqajit_status xqajit_get_stats(xqajit_service* service, xqajit_stats* stats) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(stats);
        return hand_out_struct(service->service->stats(), offsetof(xqajit_stats, memory_hits), stats);
    });
}

xqajit_status xqajit_metrics(xqajit_service* service, int32_t scope, int32_t format, char** text) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(text);
        return hand_out(service->service->metrics(scope, format), text);
    });
}

}  // extern "C"
