// A shape list becomes kernels on disk: hits are only counted, misses are compiled by worker processes side by side, each unless another
// process does it meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json.h"
#include "service/impl.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// One kernel of the list, whatever the number of shapes that share it.
struct Job {
    std::vector<std::string> names;
    CompileRequest request;  // unset where no family admits the shape
    ImageKey key;
    bool admitted = false;
    int cost = 0;
    std::string result;  // "hit", "compiled", "failed"
    Status status;
    double ms = 0;
    std::shared_ptr<KernelImage const> image;
};

// How long a compile takes, in tenths of a plain one: as NVRTC 13.0 does with the bundled models, where all lie within 8 and 13.
int expected_cost(KernelSpec const& spec) {
    bool const converts = is_8bit(spec.kv_dtype);
    return 10 + (converts ? 1 : 0) + (spec.head_dim <= 64 ? 1 : 0) - (!converts && spec.m_tile == 1 ? 2 : 0);
}

// A kernel that no later process finds was not prewarmed, however well it compiles.
Status not_kept(Status const& why) { return {why.code(), "the kernel cannot be kept on disk: " + why.message()}; }

std::string describe(Job const& job) {
    std::string const name = job.names.empty() ? std::string("unnamed") : job.names.front();
    std::string const more = job.names.size() > 1 ? fmt::format(" +{}", job.names.size() - 1) : "";
    std::string const kernel = job.admitted ? fmt::format("{} {} {}", family_name(job.request.family), job.request.target,
                                                          job.key.key.body.hex().substr(0, 12))
                                            : job.request.target;
    std::string const what = job.result == "compiled" ? fmt::format("compiled in {:.0f} ms", job.ms) : job.result;
    return fmt::format("{} {} ({}{}){}", kernel, what, name, more, job.status.ok() ? "" : ": " + job.status.message());
}

Json job_json(Job const& job) {
    Json json = {{"names", job.names}};
    json["family"] = job.admitted ? Json(family_name(job.request.family)) : Json(nullptr);
    json["target"] = job.request.target;
    json["key"] = job.admitted ? Json(job.key.key.body.hex() + "/" + job.key.key.compiler.hex()) : Json(nullptr);
    json["result"] = job.result;
    if (job.image != nullptr) {
        Json const metadata = Json::parse(job.image->metadata, nullptr, /*allow_exceptions=*/false);
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

// A compile needs up to half a gigabyte, and a machine that holds a model may have little left.
std::uint32_t default_jobs() {
    constexpr std::uint64_t kBytesPerJob = 512ull << 20;
    std::uint64_t jobs = std::max(1u, std::thread::hardware_concurrency());
    std::ifstream meminfo("/proc/meminfo");
    std::string name;
    std::uint64_t kibibytes = 0;
    for (std::string unit; meminfo >> name >> kibibytes; std::getline(meminfo, unit)) {
        if (name == "MemAvailable:") jobs = std::min(jobs, std::max<std::uint64_t>(1, kibibytes * 1024 / kBytesPerJob));
    }
    return static_cast<std::uint32_t>(jobs);
}

class Prewarm {
public:
    Prewarm(Service::Impl& service, xqajit_prewarm_options const& options) : service_(service), options_(options) {}

    void add(ShapeEntry const& entry, Target const& target);
    Status run();
    Service::PrewarmReport report(std::size_t entries, double seconds) const;

private:
    struct Miss {
        Job* job = nullptr;
        bool put_off = false;  // another process was compiling it
    };
    void add(Job job, std::string const& name);
    bool next(Miss& miss);
    void compile(Miss miss, std::string const* worker) noexcept;
    void compile_or_throw(Miss miss, std::string const* worker);
    void finish(Job& job, std::string result, Status status);

    Service::Impl& service_;
    xqajit_prewarm_options const& options_;
    std::vector<Job> jobs_;
    std::map<CacheKey, std::size_t> job_of_key_;
    std::mutex misses_mutex_;
    std::deque<Miss> misses_;
    std::mutex mutex_;  // serialises progress
    std::uint32_t done_ = 0;
    Status progress_;  // of the caller's function: not called again once it has thrown
};

void Prewarm::add(ShapeEntry const& entry, Target const& target) {
    Result<Selection> const selection = select(entry.params, target.arch, service_.overrides);
    if (!selection.ok()) {
        Job job;
        job.request.target = target.arch.target;
        job.status = selection.status();
        add(std::move(job), entry.name);
        return;
    }
    for (KernelSpec const& spec : selection->specs()) {
        Job job;
        job.admitted = true;
        job.cost = expected_cost(spec);
        job.request = request_of(spec);
        job.key = service_.images.key_of(job.request);
        add(std::move(job), entry.name);
    }
}

void Prewarm::add(Job job, std::string const& name) {
    Job* at = nullptr;
    if (job.admitted) {
        auto const [known, is_new] = job_of_key_.try_emplace(job.key.key, jobs_.size());
        if (!is_new) at = &jobs_[known->second];
    }
    if (at == nullptr) at = &jobs_.emplace_back(std::move(job));
    if (!name.empty()) at->names.push_back(name);
}

// Fails only where nothing could be compiled for a reason of the settings.
Status Prewarm::run() {
    for (Job& job : jobs_) {
        auto const start = Clock::now();
        if (!job.admitted) {
            finish(job, "failed", job.status);
        } else if ((job.image = service_.images.load(job.request, job.key)) != nullptr) {
            job.ms = ms_since(start);
            finish(job, "hit", {});
        } else if (!job.key.compiler.ok()) {
            finish(job, "failed", job.key.compiler);
        } else if (cache::StoreState const store = service_.store->state(); !store.writable) {
            finish(job, "failed", not_kept(unavailable(store.reason)));
        } else {
            misses_.push_back({&job, false});
        }
    }
    if (misses_.empty()) return {};
    // The longest first, so that the workers end at about the same time.
    std::stable_sort(misses_.begin(), misses_.end(), [](Miss const& a, Miss const& b) { return a.job->cost > b.job->cost; });

    Result<std::optional<std::string>> const worker = service_.toolchain.worker_to_use();
    if (!worker.ok()) return worker.status();
    auto const work = [&] {
        for (Miss miss; next(miss);) compile(miss, *worker ? &**worker : nullptr);
    };
    // NVRTC's front end is serial within a process: without a worker more threads would only queue.
    std::size_t const jobs = !*worker ? 1 : options_.jobs != 0 ? options_.jobs : default_jobs();
    std::size_t const at_once = std::min(jobs, misses_.size());
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < at_once; ++i) threads.emplace_back(work);
    return {};
}

// False: none is left. What a thread puts off after that is met by the same thread.
bool Prewarm::next(Miss& miss) {
    std::lock_guard const lock(misses_mutex_);
    if (misses_.empty()) return false;
    miss = misses_.front();
    misses_.pop_front();
    return true;
}

// A thread's body: an exception that left it would end the process.
void Prewarm::compile(Miss miss, std::string const* worker) noexcept {
    try {
        compile_or_throw(miss, worker);
    } catch (std::exception const& error) {
        finish(*miss.job, "failed", Status(XQAJIT_INTERNAL, error.what()));
    }
}

void Prewarm::compile_or_throw(Miss miss, std::string const* worker) {
    Job& job = *miss.job;
    auto const start = Clock::now();
    // What another process compiles is met again after all others: two that prewarm one list share the work.
    cache::KeyLock lock = service_.images.lock(job.request, job.key.key, /*wait=*/miss.put_off);
    if (!miss.put_off && lock.state() == cache::KeyLock::State::kBusy) {
        std::lock_guard const guard(misses_mutex_);
        misses_.push_back({&job, true});
        return;
    }
    if ((job.image = service_.images.published(job.request, job.key, lock)) != nullptr) {
        job.ms = ms_since(start);
        finish(job, "hit", {});
        return;
    }
    auto const compile_start = Clock::now();
    Result<CompiledImage> compiled = worker != nullptr ? service_.toolchain.compile_in_worker(*worker, job.request)
                                                       : service_.toolchain.compile_in_process(job.request);
    job.ms = ms_since(compile_start);
    if (!compiled.ok()) {
        lock.abandon();
        service_.images.count_failure();
        finish(job, "failed", compiled.status());
        return;
    }
    Status stored;
    job.image = service_.images.keep(job.request, job.key.key, std::move(compiled).value(), &stored);
    finish(job, stored.ok() ? "compiled" : "failed", stored.ok() ? stored : not_kept(stored));
}

void Prewarm::finish(Job& job, std::string result, Status status) {
    job.result = std::move(result);
    job.status = std::move(status);
    std::lock_guard const lock(mutex_);
    ++done_;
    if (options_.progress == nullptr || !progress_.ok()) return;
    // A C++ caller's function may throw though it must not: that costs it the reports, and no kernel.
    auto const threw = [&](char const* what) {
        progress_ = invalid_argument(fmt::format(
            "progress threw '{}' at kernel {} of {}: accepted is a function that does not throw", what, done_, jobs_.size()));
    };
    try {
        options_.progress(options_.user, done_, static_cast<std::uint32_t>(jobs_.size()), describe(job).c_str());
    } catch (std::exception const& error) {
        threw(error.what());
    } catch (...) {
        threw("an unknown exception");
    }
}

Service::PrewarmReport Prewarm::report(std::size_t entries, double seconds) const {
    Json kernels = Json::array();
    std::size_t compiled = 0, hits = 0, failed = 0;
    Job const* first_failure = nullptr;
    bool no_compiler = false;
    for (Job const& job : jobs_) {
        compiled += job.result == "compiled";
        hits += job.result == "hit";
        failed += job.result == "failed";
        if (job.result == "failed" && first_failure == nullptr) first_failure = &job;
        no_compiler = no_compiler || (job.result == "failed" && job.admitted && !job.key.compiler.ok());
        kernels.push_back(job_json(job));
    }
    Json const json = {{"schema", "xqajit.prewarm/1"},
                       {"summary",
                        {{"entries", entries},
                         {"kernels", jobs_.size()},
                         {"compiled", compiled},
                         {"hits", hits},
                         {"failed", failed},
                         {"seconds", seconds}}},
                       {"kernels", std::move(kernels)}};
    Status status = progress_;
    if (first_failure != nullptr) {
        // Without a compiler nothing on this machine would help; any other reason is the kernel's own.
        status = {no_compiler ? XQAJIT_UNAVAILABLE : XQAJIT_COMPILE_FAILED,
                  fmt::format("{} of {} kernels failed; the first: {}", failed, jobs_.size(), describe(*first_failure))};
    }
    return {to_text(json, 1), std::move(status)};
}

}  // namespace

Result<Service::PrewarmReport> Service::prewarm(std::string_view shapes, xqajit_prewarm_options const& options) {
    Result<std::vector<ShapeEntry>> const entries = parse_shape_list(shapes);
    if (!entries.ok()) return entries.status();
    Result<std::vector<Target>> const targets = targets_for_prewarm(impl_->settings, options.archs);
    if (!targets.ok()) return targets.status();
    if (Status const made = impl_->store->make_directory(); !made.ok()) {
        return unavailable(fmt::format("nothing to prewarm: the cache directory {} is not usable: {}", impl_->store->origin().path,
                                       made.message()));
    }
    auto const start = Clock::now();
    Prewarm prewarm(*impl_, options);
    for (Target const& target : *targets)
        for (ShapeEntry const& entry : *entries) prewarm.add(entry, target);
    XQAJIT_RETURN_IF_ERROR(prewarm.run());
    return prewarm.report(entries->size(), ms_since(start) * 1e-3);
}

}  // namespace xqajit
