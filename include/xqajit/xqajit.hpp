// C++ over xqajit.h: one owning class, and exceptions in place of status codes. Header-only, C++17; link libxqajit.
//
//   xqajit::Service service;
//   xqajit_params params = xqajit::params_from_json(R"({"q_dtype": "bf16", "num_q_heads": 32, "num_kv_heads": 8, "head_dim": 128})");
//   service.prepare(params);
//   service.run(params, args, stream);
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "xqajit/xqajit.h"

namespace xqajit {
inline namespace cxx {  // its own symbols, whatever else lives in namespace xqajit

class Error : public std::runtime_error {
public:
    Error(xqajit_status code, std::string const& text, std::string report = {})
        : std::runtime_error(text), code_(code), report_(std::move(report)) {}
    xqajit_status code() const noexcept { return code_; }
    // The document of a call that failed for some of its parts (prewarm, cache_verify, cache_gc, cache_export); else empty.
    std::string const& report() const noexcept { return report_; }

private:
    xqajit_status code_;
    std::string report_;
};

inline void check(xqajit_status status) {
    if (status != XQAJIT_OK) throw Error(status, xqajit_last_error());
}

// Thread-safe like the handle it owns; throws Error where the C function returns a failure.
class Service {
public:
    // "": XQAJIT_CACHE_DIR and its defaults.
    explicit Service(std::string const& cache_dir = {}) {
        check(xqajit_create(cache_dir.empty() ? nullptr : cache_dir.c_str(), &handle_));
    }
    Service(Service&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Service& operator=(Service&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    Service(Service const&) = delete;
    Service& operator=(Service const&) = delete;
    ~Service() { xqajit_destroy(handle_); }

    xqajit_service* get() const noexcept { return handle_; }

    void prepare(xqajit_params const& params) { check(xqajit_prepare(handle_, &params)); }
    void prepare_async(xqajit_params const& params) { check(xqajit_prepare_async(handle_, &params)); }
    void prepare_wait(xqajit_params const& params, std::uint32_t timeout_ms) {
        check(xqajit_prepare_wait(handle_, &params, timeout_ms));
    }
    std::uint64_t workspace_size(xqajit_params const& params, std::uint32_t max_batch, std::uint64_t max_len) {
        std::uint64_t bytes = 0;
        check(xqajit_workspace_size(handle_, &params, max_batch, max_len, &bytes));
        return bytes;
    }
    void workspace_init(void* workspace, std::uint64_t bytes, xqajit_stream stream) {
        check(xqajit_workspace_init(handle_, workspace, bytes, stream));
    }
    void workspace_release(void* workspace) { check(xqajit_workspace_release(handle_, workspace)); }
    void run(xqajit_params const& params, xqajit_run_args const& args, xqajit_stream stream) {
        check(xqajit_run(handle_, &params, &args, stream));
    }

    // arch: "" takes XQAJIT_ARCH, else the current context's, else GPU 0's.
    bool supports(xqajit_params const& params, std::string const& arch = {}) {
        xqajit_status const status = xqajit_supports(handle_, &params, or_null(arch));
        if (status != XQAJIT_UNSUPPORTED) check(status);
        return status == XQAJIT_OK;
    }
    std::string capabilities(std::string const& arch = {}) {
        return document([&](char** json) { return xqajit_capabilities(handle_, or_null(arch), json); });
    }
    std::string explain(xqajit_params const& params, std::string const& arch, std::uint32_t batch, std::uint64_t seq_len) {
        return document([&](char** json) { return xqajit_explain(handle_, &params, or_null(arch), batch, seq_len, json); });
    }
    std::string prewarm(std::string const& shapes, xqajit_prewarm_options const& options) {
        return document([&](char** json) { return xqajit_prewarm(handle_, shapes.c_str(), &options, json); });
    }
    std::string parse_shapes(std::string const& shapes) {
        return document([&](char** json) { return xqajit_parse_shapes(handle_, shapes.c_str(), json); });
    }
    std::string cache_list() {
        return document([&](char** json) { return xqajit_cache_list(handle_, json); });
    }
    std::string cache_show(std::string const& key_prefix) {
        return document([&](char** json) { return xqajit_cache_show(handle_, key_prefix.c_str(), json); });
    }
    std::string cache_verify() {
        return document([&](char** json) { return xqajit_cache_verify(handle_, json); });
    }
    std::string cache_gc(xqajit_gc_options const& options) {
        return document([&](char** json) { return xqajit_cache_gc(handle_, &options, json); });
    }
    std::string cache_export(std::string const& file) {
        return document([&](char** json) { return xqajit_cache_export(handle_, file.c_str(), json); });
    }
    std::string cache_import(std::string const& file, xqajit_import_options const& options) {
        return document([&](char** json) { return xqajit_cache_import(handle_, file.c_str(), &options, json); });
    }
    std::string cache_show_bundle(std::string const& file) {
        return document([&](char** json) { return xqajit_cache_show_bundle(handle_, file.c_str(), json); });
    }
    // key_prefix: "" for all kernels of the shape; params: null where it is the key of an entry.
    std::string cache_explain_miss(std::string const& key_prefix, xqajit_params const* params, std::string const& arch = {}) {
        return document(
            [&](char** json) { return xqajit_cache_explain_miss(handle_, or_null(key_prefix), params, or_null(arch), json); });
    }
    std::string cache_path() {
        return document([&](char** json) { return xqajit_cache_path(handle_, json); });
    }
    std::string doctor() {
        return document([&](char** json) { return xqajit_doctor(handle_, json); });
    }
    xqajit_stats stats() {
        xqajit_stats stats = XQAJIT_STATS_INIT;
        check(xqajit_get_stats(handle_, &stats));
        return stats;
    }
    std::string metrics(xqajit_metrics_scope scope, xqajit_metrics_format format) {
        return document([&](char** text) { return xqajit_metrics(handle_, scope, format, text); });
    }

private:
    static char const* or_null(std::string const& text) { return text.empty() ? nullptr : text.c_str(); }

    // Runs a call that hands out a text, and owns the text whatever happens.
    template <class Call> static std::string document(Call const& call) {
        struct Text {
            char* value = nullptr;
            ~Text() { xqajit_free(value); }
        } text;
        xqajit_status const status = call(&text.value);
        std::string copy = text.value != nullptr ? text.value : "";
        if (status != XQAJIT_OK) throw Error(status, xqajit_last_error(), std::move(copy));
        return copy;
    }

    xqajit_service* handle_ = nullptr;
};

inline xqajit_params params_from_json(std::string const& json) {
    xqajit_params params = XQAJIT_PARAMS_INIT;
    check(xqajit_params_from_json(json.c_str(), &params));
    return params;
}

}  // namespace cxx
}  // namespace xqajit
