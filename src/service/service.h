// Service: validation -> selection -> key -> registry | disk | NVRTC -> module -> plan -> launch.
#pragma once

#include <memory>
#include <string>

#include "base/settings.h"
#include "params/shape_list.h"
#include "plan/plan.h"
#include "select/select.h"

struct CUstream_st;

namespace xqajit {

class Service {
public:
    // cache_dir: "" takes XQAJIT_CACHE_DIR and its defaults.
    static Result<std::unique_ptr<Service>> create(std::string const& cache_dir);
    ~Service();

    Status prepare(XQAParams const& params);
    Status prepare_async(XQAParams const& params);
    Status prepare_wait(XQAParams const& params, std::uint32_t timeout_ms);
    Result<std::uint64_t> workspace_size(XQAParams const& params, std::uint32_t max_batch, std::uint64_t max_len);
    Status workspace_init(void* workspace, std::uint64_t bytes, CUstream_st* stream);
    Status workspace_release(void* workspace);
    Status run(XQAParams const& params, RunArgs const& args, CUstream_st* stream);

    Status supports(XQAParams const& params, char const* arch);
    Result<std::string> capabilities(char const* arch);
    Result<std::string> explain(XQAParams const& params, char const* arch, std::uint32_t batch, std::uint64_t seq_len);
    struct PrewarmReport {
        std::string json;
        Status status;
    };
    Result<PrewarmReport> prewarm(std::string_view shapes, xqajit_prewarm_options const& options);
    Result<std::string> cache_list();
    Result<std::string> cache_show(std::string_view key_prefix);
    struct VerifyReport {
        std::string json;
        Status status;
    };
    Result<VerifyReport> cache_verify();
    struct GcReport {
        std::string json;
        Status status;
    };
    Result<GcReport> cache_gc(xqajit_gc_options const& options);
    struct ExportReport {
        std::string json;
        Status status;
    };
    Result<ExportReport> cache_export(std::string const& file);
    Result<std::string> cache_import(std::string const& file, xqajit_import_options const& options);
    Result<std::string> cache_show_bundle(std::string const& file);
    Result<std::string> cache_explain_miss(std::string_view key_prefix, XQAParams const* params, char const* arch);
    Result<std::string> cache_path();
    Result<std::string> doctor();
    xqajit_stats stats() const;
    Result<std::string> metrics(std::int32_t scope, std::int32_t format);

    struct Impl;  // service/impl.h: for the service's own files

private:
    Service();
    std::unique_ptr<Impl> impl_;
};

}  // namespace xqajit
