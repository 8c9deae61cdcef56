// A prewarm's kernels: what is known of each, and the report of all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service/kernel_images.h"
#include "service/prewarm_share.h"
#include "service/service.h"

namespace xqajit {

// One kernel of the list, whatever the number of shapes that share it.
struct PrewarmJob {
    std::vector<std::string> names;
    CompileRequest request;  // only a target where no family admits the shape
    ImageKey key;
    bool admitted = false;
    int cost = 0;
    std::string result;  // "hit", "compiled", "failed", "stopped"; "" until then
    Status status;
    double ms = 0;        // of the load, or of the last compile
    double spent_ms = 0;  // of all its compiles
    int tries = 0;        // compiles
    std::shared_ptr<KernelImage const> image;
};

// How long a compile takes, in tenths of a plain one.
int expected_cost(KernelSpec const& spec);

// "gmma sm_90a 0123456789ab compiled in 812 ms (llama +3)": the word or the words of its result stand before the first parenthesis.
std::string describe(PrewarmJob const& job);

// What of the list was put into the remote that was not there.
struct RemoteShare {
    std::uint64_t stored = 0, not_stored = 0;
};

struct PrewarmRun {
    std::vector<PrewarmJob> jobs;
    std::size_t entries = 0;       // of the shape list
    std::size_t list_kernels = 0;  // of all shards
    std::uint32_t shard = 0, shards = 1;
    WorkerChoice choice{0, {}};  // 0 workers: there was nothing to compile
    double seconds = 0;
    bool stopped = false;                    // by its caller, before all was done
    Status progress;                         // of the caller's functions
    std::optional<RemoteShare> remote = {};  // nothing: none is written
};

Service::PrewarmReport report_of(PrewarmRun const& run);

}  // namespace xqajit
