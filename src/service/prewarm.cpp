// A shape list becomes kernels on disk: hits are only counted, misses are compiled by worker processes side by side, each unless another
// process does it meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/memory_limit.h"
#include "base/subprocess.h"
#include "service/impl.h"
#include "service/prewarm_report.h"

namespace xqajit {
namespace {

using Job = PrewarmJob;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

// A kernel that no later process finds was not prewarmed, however well it compiles.
Status not_kept(Status const& why) { return {why.code(), "the kernel cannot be kept on disk: " + why.message()}; }

class Prewarm {
public:
    Prewarm(Service::Impl& service, xqajit_prewarm_options const& options) : service_(service), options_(options) {}

    void add(ShapeEntry const& entry, Target const& target);
    void keep_shard();
    Status run();
    void finish_remote();
    Service::PrewarmReport report(std::size_t entries, double seconds);

private:
    struct Miss {
        Job* job = nullptr;
        bool put_off = false;  // another process was compiling it
    };
    void add(Job job, std::string const& name);
    void find_misses();
    void compile_all(std::string const* worker);
    bool is_stopped() const { return is_set(options_.stop); }
    bool next(Miss& miss);
    void compile(Miss miss, std::string const* worker) noexcept;
    void compile_or_throw(Miss miss, std::string const* worker);
    void try_again_later(Job& job, Status const& why);
    void finish(Job& job, std::string result, Status status);
    template <class Call> void tell(char const* function, Call const& call);

    Service::Impl& service_;
    xqajit_prewarm_options const& options_;
    std::vector<Job> jobs_;
    std::size_t list_kernels_ = 0;  // of all shards
    std::map<CacheKey, std::size_t> job_of_key_;
    WorkerChoice choice_{0, {}};
    cache::RemoteCounts const remote_before_ = service_.remote->counts();
    std::mutex misses_mutex_;
    std::deque<Miss> misses_;
    std::mutex mutex_;  // serialises progress, and guards what follows
    std::uint32_t done_ = 0;
    std::vector<Job*> again_;  // killed or out of memory at the first try
    bool alone_ = false;       // no other compile runs: what fails now has failed
    Status progress_;          // of the caller's functions: not called again once one has thrown
};

void Prewarm::add(ShapeEntry const& entry, Target const& target) {
    Result<Selection> const selection = select(entry.params, target.arch, service_.overrides);
    if (!selection.ok()) {
        Job job;
        job.request.target = target.arch.target;
        job.key.key.body = digest_of(target.arch.target + " " + to_json(entry.params));  // for shards: there is no kernel
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

void Prewarm::keep_shard() {
    list_kernels_ = jobs_.size();
    std::erase_if(jobs_, [&](Job const& job) { return !in_shard(job.key.key.body, options_.shard, options_.shards); });
}

// Finishes what needs no compile.
void Prewarm::find_misses() {
    for (Job& job : jobs_) {
        if (is_stopped()) break;
        auto const start = Clock::now();
        if (!job.admitted) {
            finish(job, "failed", job.status);
        } else if ((job.image = service_.images.load(job.request, job.key)) != nullptr) {
            job.ms = ms_since(start);
            service_.images.offer(*job.image);
            finish(job, "hit", {});
        } else if (!job.key.compiler.ok()) {
            finish(job, "failed", job.key.compiler);
        } else if (cache::StoreState const store = service_.store->state(); !store.writable) {
            finish(job, "failed", not_kept(unavailable(store.reason)));
        } else {
            misses_.push_back({&job, false});
        }
    }
}

// Fails only where nothing could be compiled for a reason of the settings.
Status Prewarm::run() {
    find_misses();
    if (misses_.empty() || is_stopped()) return {};
    // The longest first, so that the workers end at about the same time.
    std::stable_sort(misses_.begin(), misses_.end(), [](Miss const& a, Miss const& b) { return a.job->cost > b.job->cost; });

    Result<std::optional<std::string>> const worker = service_.toolchain.worker_to_use();
    if (!worker.ok()) return worker.status();
    // NVRTC's front end is serial within a process: without a worker more threads would only queue.
    choice_ = *worker ? choose_workers(options_.jobs, misses_.size(), std::thread::hardware_concurrency(), available_memory())
                      : WorkerChoice{1, "in this process, for want of a worker's executable"};
    tell("start", [&] {
        auto const count = static_cast<std::uint32_t>(misses_.size());
        if (options_.start != nullptr) options_.start(options_.user, count, choice_.workers, choice_.reason.c_str());
    });
    compile_all(*worker ? &**worker : nullptr);
    alone_ = true;
    for (Job* job : again_)
        if (!is_stopped()) compile({job, true}, *worker ? &**worker : nullptr);
    return {};
}

void Prewarm::compile_all(std::string const* worker) {
    auto const work = [&] {
        for (Miss miss; !is_stopped() && next(miss);) compile(miss, worker);
    };
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < choice_.workers; ++i) threads.emplace_back(work);
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
    cache::KeyLock lock = service_.images.lock(job.request, job.key.key, /*wait=*/miss.put_off, [this] { return is_stopped(); });
    if (!miss.put_off && lock.state() == cache::KeyLock::State::kBusy) {
        std::lock_guard const guard(misses_mutex_);
        misses_.push_back({&job, true});
        return;
    }
    if (is_stopped()) return;
    if ((job.image = service_.images.published(job.request, job.key, lock)) != nullptr) {
        job.ms = ms_since(start);
        finish(job, "hit", {});
        return;
    }
    auto const compile_start = Clock::now();
    WorkerWatch watch{options_.stop};
    Result<CompiledImage> compiled = worker != nullptr ? service_.toolchain.compile_in_worker(*worker, job.request, &watch)
                                                       : service_.toolchain.compile_in_process(job.request);
    job.ms = ms_since(compile_start);
    job.spent_ms += job.ms;
    ++job.tries;
    if (!compiled.ok()) {
        xqajit_status const code = compiled.status().code();
        if (code == XQAJIT_INTERRUPTED) return;
        if (!alone_ && (watch.killed || code == XQAJIT_OUT_OF_MEMORY)) return try_again_later(job, compiled.status());
        lock.abandon();
        service_.images.count_failure();
        finish(job, "failed", compiled.status());
        return;
    }
    Status stored;
    job.image = service_.images.keep(job.request, job.key.key, std::move(compiled).value(), &stored);
    finish(job, stored.ok() ? "compiled" : "failed", stored.ok() ? stored : not_kept(stored));
}

// Beside others a compile may have had too little memory, or been what the kernel picked when another had: alone it may pass.
void Prewarm::try_again_later(Job& job, Status const& why) {
    log::warning(why.message() + ": it is tried again, alone, when the others are done");
    std::lock_guard const lock(mutex_);
    job.status = why;
    again_.push_back(&job);
}

void Prewarm::finish(Job& job, std::string result, Status status) {
    job.result = std::move(result);
    job.status = std::move(status);
    std::lock_guard const lock(mutex_);
    ++done_;
    tell("progress", [&] {
        if (options_.progress == nullptr) return;
        options_.progress(options_.user, done_, static_cast<std::uint32_t>(jobs_.size()), describe(job).c_str());
    });
}

template <class Call> void Prewarm::tell(char const* function, Call const& call) {
    if (!progress_.ok()) return;
    // A C++ caller's function may throw though it must not: that costs it the reports, and no kernel.
    auto const threw = [&](char const* what) {
        progress_ = invalid_argument(fmt::format("{} threw '{}' at kernel {} of {}: accepted is a function that does not throw",
                                                 function, what, done_, jobs_.size()));
    };
    try {
        call();
    } catch (std::exception const& error) {
        threw(error.what());
    } catch (...) {
        threw("an unknown exception");
    }
}

// What a later machine finds there is what this one was asked for: waits until it is put, or the server fails.
void Prewarm::finish_remote() {
    if (!is_stopped()) service_.remote->flush();
}

Service::PrewarmReport Prewarm::report(std::size_t entries, double seconds) {
    std::optional<RemoteShare> remote;
    cache::RemoteCounts const counts = service_.remote->counts();
    if (service_.remote->is_writable())
        remote = RemoteShare{counts.stored - remote_before_.stored, counts.not_stored - remote_before_.not_stored};
    bool stopped = false;
    for (Job& job : jobs_) {
        if (!job.result.empty()) continue;
        job.result = "stopped";
        stopped = true;
    }
    return report_of({std::move(jobs_), entries, list_kernels_, options_.shard, std::max(1u, options_.shards), std::move(choice_),
                      seconds, stopped, progress_, remote});
}

}  // namespace

Result<Service::PrewarmReport> Service::prewarm(std::string_view shapes, xqajit_prewarm_options const& options) {
    XQAJIT_RETURN_IF_ERROR(check_shard(options.shard, options.shards));
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
    prewarm.keep_shard();
    XQAJIT_RETURN_IF_ERROR(prewarm.run());
    prewarm.finish_remote();
    return prewarm.report(entries->size(), ms_since(start) * 1e-3);
}

}  // namespace xqajit
