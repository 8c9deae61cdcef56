// The C interface over Service: no exception crosses it, every failure leaves its text in this thread's last error.
#include "xqajit/xqajit.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "base/log.h"
#include "params/shape_list.h"
#include "params/versioned.h"
#include "service/service.h"

struct xqajit_service {
    std::unique_ptr<xqajit::Service> service;
};

namespace {

using xqajit::invalid_argument;
using xqajit::Result;
using xqajit::Service;
using xqajit::Status;

thread_local std::string last_error;

void remember(char const* text) noexcept {
    try {
        last_error = text;
    } catch (...) {
        last_error.clear();  // out of memory while telling so: the code alone must do
    }
}

xqajit_status report(Status const& status) noexcept {
    if (status.ok()) return XQAJIT_OK;
    try {
        last_error = status.detail().empty() ? status.message() : status.message() + "\n" + status.detail();
    } catch (...) {
        last_error.clear();
    }
    return status.code();
}

template <class Body> xqajit_status guarded(Body const& body) noexcept {
    try {
        return report(body());
    } catch (std::bad_alloc const&) {
        remember("out of host memory");
        return XQAJIT_OUT_OF_MEMORY;
    } catch (std::exception const& error) {
        remember(error.what());
        return XQAJIT_INTERNAL;
    } catch (...) {
        remember("an exception of unknown type");
        return XQAJIT_INTERNAL;
    }
}

Status is_null(char const* name) { return invalid_argument(std::string(name) + " is null: a pointer is accepted"); }

#define XQAJIT_REQUIRE(pointer) \
    if ((pointer) == nullptr) return is_null(#pointer)

Status hand_out(std::string const& text, char** out) {
    auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    *out = copy;
    return {};
}

Status hand_out(Result<std::string> const& text, char** out) {
    if (!text.ok()) return text.status();
    return hand_out(*text, out);
}

// Fills as much of the caller's struct as it has room for.
template <class T> Status hand_out_struct(T const& value, std::size_t minimum, T* out) {
    std::size_t const size = out->struct_size;
    T known{};
    XQAJIT_RETURN_IF_ERROR(xqajit::copy_versioned(*out, minimum, known));  // judges struct_size
    std::memcpy(static_cast<void*>(out), &value, std::min(size, sizeof(T)));
    out->struct_size = static_cast<std::uint32_t>(size);
    return {};
}

}  // namespace

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

xqajit_status xqajit_cache_list(xqajit_service* service, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->cache_list(), json);
    });
}

xqajit_status xqajit_cache_show(xqajit_service* service, char const* key_prefix, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(key_prefix);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->cache_show(key_prefix), json);
    });
}

xqajit_status xqajit_cache_verify(xqajit_service* service, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        Result<Service::VerifyReport> const verified = service->service->cache_verify();
        if (!verified.ok()) return verified.status();
        XQAJIT_RETURN_IF_ERROR(hand_out(verified->json, json));
        return verified->status;
    });
}

xqajit_status xqajit_cache_gc(xqajit_service* service, xqajit_gc_options const* options, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(options);
        XQAJIT_REQUIRE(json);
        xqajit_gc_options known = XQAJIT_GC_OPTIONS_INIT;
        XQAJIT_RETURN_IF_ERROR(xqajit::copy_versioned(*options, sizeof(xqajit_gc_options), known));
        Result<Service::GcReport> const collected = service->service->cache_gc(known);
        if (!collected.ok()) return collected.status();
        XQAJIT_RETURN_IF_ERROR(hand_out(collected->json, json));
        return collected->status;
    });
}

xqajit_status xqajit_cache_export(xqajit_service* service, char const* file, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(file);
        XQAJIT_REQUIRE(json);
        Result<Service::ExportReport> const exported = service->service->cache_export(file);
        if (!exported.ok()) return exported.status();
        XQAJIT_RETURN_IF_ERROR(hand_out(exported->json, json));
        return exported->status;
    });
}

xqajit_status xqajit_cache_import(xqajit_service* service, char const* file, xqajit_import_options const* options, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(file);
        XQAJIT_REQUIRE(json);
        xqajit_import_options known = XQAJIT_IMPORT_OPTIONS_INIT;
        if (options != nullptr) XQAJIT_RETURN_IF_ERROR(xqajit::copy_versioned(*options, sizeof(xqajit_import_options), known));
        return hand_out(service->service->cache_import(file, known), json);
    });
}

xqajit_status xqajit_cache_show_bundle(xqajit_service* service, char const* file, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(file);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->cache_show_bundle(file), json);
    });
}

xqajit_status xqajit_cache_explain_miss(xqajit_service* service, char const* key_prefix, xqajit_params const* params,
                                        char const* arch, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->cache_explain_miss(key_prefix != nullptr ? key_prefix : "", params, arch), json);
    });
}

xqajit_status xqajit_cache_path(xqajit_service* service, char** json) {
    return guarded([&]() -> Status {
        XQAJIT_REQUIRE(service);
        XQAJIT_REQUIRE(json);
        return hand_out(service->service->cache_path(), json);
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
