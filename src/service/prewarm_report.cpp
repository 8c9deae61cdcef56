#include "service/prewarm_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kSlowest = 10;

std::string key_text(PrewarmJob const& job) { return job.key.key.body.hex() + "/" + job.key.key.compiler.hex(); }

Json job_json(PrewarmJob const& job) {
    Json json = {{"names", job.names}};
    json["family"] = job.admitted ? Json(family_name(job.request.family)) : Json(nullptr);
    json["target"] = job.request.target;
    json["key"] = job.admitted ? Json(key_text(job)) : Json(nullptr);
    json["result"] = job.result;
    if (job.tries > 1) json["tries"] = job.tries;
    if (job.image != nullptr) {
        Json const metadata = parse_metadata(job.image->metadata);
        json["ms"] = job.ms;
        json["bytes"] = job.image->image.size();
        for (char const* field : {"registers", "spill_bytes"})
            if (metadata.is_object() && metadata.contains(field)) json[field] = metadata[field];
    }
    if (!job.status.ok()) {
        json["error"] = job.status.message();
        if (!job.status.detail().empty()) json["detail"] = job.status.detail();
    }
    return json;
}

Json slowest_json(std::vector<PrewarmJob> const& jobs) {
    std::vector<PrewarmJob const*> compiled;
    for (PrewarmJob const& job : jobs)
        if (job.result == "compiled") compiled.push_back(&job);
    std::stable_sort(compiled.begin(), compiled.end(), [](PrewarmJob const* a, PrewarmJob const* b) { return a->ms > b->ms; });
    compiled.resize(std::min(compiled.size(), kSlowest));
    Json slowest = Json::array();
    for (PrewarmJob const* job : compiled) {
        slowest.push_back({{"key", key_text(*job)},
                           {"family", family_name(job->request.family)},
                           {"target", job->request.target},
                           {"ms", job->ms},
                           {"names", job->names}});
    }
    return slowest;
}

}  // namespace

// As NVRTC 13.0 does with the bundled models, where all lie within 8 and 13.
int expected_cost(KernelSpec const& spec) {
    bool const converts = is_8bit(spec.kv_dtype);
    return 10 + (converts ? 1 : 0) + (spec.head_dim <= 64 ? 1 : 0) - (!converts && spec.m_tile == 1 ? 2 : 0);
}

std::string describe(PrewarmJob const& job) {
    std::string const name = job.names.empty() ? std::string("unnamed") : job.names.front();
    std::string const more = job.names.size() > 1 ? fmt::format(" +{}", job.names.size() - 1) : "";
    std::string const kernel = job.admitted ? fmt::format("{} {} {}", family_name(job.request.family), job.request.target,
                                                          job.key.key.body.hex().substr(0, 12))
                                            : job.request.target;
    std::string what = job.result == "compiled" ? fmt::format("compiled in {:.0f} ms", job.ms) : job.result;
    if (job.tries > 1) what += fmt::format(" at try {}, alone", job.tries);
    return fmt::format("{} {} ({}{}){}", kernel, what, name, more, job.status.ok() ? "" : ": " + job.status.message());
}

Service::PrewarmReport report_of(PrewarmRun const& run) {
    Json kernels = Json::array();
    std::size_t compiled = 0, hits = 0, failed = 0, stopped = 0, retried = 0;
    double spent_ms = 0;
    PrewarmJob const* first_failure = nullptr;
    bool no_compiler = false;
    for (PrewarmJob const& job : run.jobs) {
        compiled += job.result == "compiled";
        hits += job.result == "hit";
        failed += job.result == "failed";
        stopped += job.result == "stopped";
        retried += job.tries > 1;
        spent_ms += job.spent_ms;
        if (job.result == "failed" && first_failure == nullptr) first_failure = &job;
        no_compiler = no_compiler || (job.result == "failed" && job.admitted && !job.key.compiler.ok());
        kernels.push_back(job_json(job));
    }
    double const compile_seconds = spent_ms * 1e-3;
    Json json = {{"schema", "xqajit.prewarm/1"}};
    json["summary"] = {{"entries", run.entries},
                       {"kernels", run.jobs.size()},
                       {"compiled", compiled},
                       {"hits", hits},
                       {"failed", failed},
                       {"stopped", stopped},
                       {"retried", retried},
                       {"seconds", run.seconds},
                       {"compile_seconds", compile_seconds},
                       {"speed_up", compiled == 0 || run.seconds <= 0 ? Json(nullptr) : Json(compile_seconds / run.seconds)}};
    json["shard"] = {{"index", run.shard}, {"count", run.shards}, {"kernels_of_all", run.list_kernels}};
    json["workers"] = run.choice.workers == 0 ? Json(nullptr) : Json{{"count", run.choice.workers}, {"reason", run.choice.reason}};
    json["remote"] = run.remote ? Json{{"stored", run.remote->stored}, {"not_stored", run.remote->not_stored}} : Json(nullptr);
    json["slowest"] = slowest_json(run.jobs);
    json["kernels"] = std::move(kernels);

    Status status = run.progress;
    if (run.stopped) {
        status = {XQAJIT_INTERRUPTED, fmt::format("{} of {} kernels done{}; run it again to go on", compiled + hits,
                                                  run.jobs.size(), failed == 0 ? "" : fmt::format(", {} failed", failed))};
    } else if (first_failure != nullptr) {
        // Without a compiler nothing on this machine would help; any other reason is the kernel's own.
        status = {no_compiler ? XQAJIT_UNAVAILABLE : XQAJIT_COMPILE_FAILED,
                  fmt::format("{} of {} kernels failed; the first: {}", failed, run.jobs.size(), describe(*first_failure))};
    }
    return {to_text(json, 1), std::move(status)};
}

}  // namespace xqajit
