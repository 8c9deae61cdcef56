// The C interface to the kernel cache.
#include "api/guard.h"

using namespace xqajit::api;
using xqajit::Result;
using xqajit::Service;
using xqajit::Status;

extern "C" {

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

}  // extern "C"
