// What a Service holds. Its methods live in one file a task: prepare.cpp, run.cpp, explain.cpp, prewarm.cpp, ...
#pragma once

#include <memory>
#include <string>

#include "cache/disk_store.h"
#include "cache/layers.h"
#include "cache/registry.h"
#include "cache/remote.h"
#include "driver/context.h"
#include "driver/module.h"
#include "service/background.h"
#include "service/kernel_images.h"
#include "service/metrics.h"
#include "service/prepared_key.h"
#include "service/service.h"
#include "service/shape_recorder.h"
#include "service/targets.h"
#include "service/toolchain.h"
#include "service/workspaces.h"

namespace xqajit {

// A kernel in one context. Shapes that differ in run-time fields alone share it.
struct LoadedImage {
    driver::LoadedKernel kernel;
};

struct SpecifiedKernel {
    KernelSpec spec;
    LoadedImage const* loaded;  // owned by Service::Impl::loaded
};

// Everything a launch of one shape in one context needs to know.
struct PreparedKernel {
    SpecifiedKernel chosen;
    std::optional<SpecifiedKernel> below_gate;  // see Selection
    ArchFacts arch;                             // of the image, with the device's SM count
};

struct Service::Impl {
    Impl(Settings parsed, Overrides forced, std::shared_ptr<cache::DiskStore> disk, std::shared_ptr<cache::Layers const> below,
         std::shared_ptr<cache::Remote> server)
        : settings(std::move(parsed)),
          overrides(std::move(forced)),
          store(std::move(disk)),
          layers(std::move(below)),
          remote(std::move(server)),
          toolchain(settings),
          images(settings, store, layers, remote, toolchain, metrics),
          recorder(settings.text(SettingId::kRecordShapes)),
          debug(settings.flag(SettingId::kDebug)) {}

    Settings const settings;
    Overrides const overrides;
    std::shared_ptr<cache::DiskStore> const store;
    std::shared_ptr<cache::Layers const> const layers;  // below the store
    std::shared_ptr<cache::Remote> const remote;        // below the layers
    Toolchain toolchain;
    Metrics metrics;
    KernelImages images;
    ShapeRecorder recorder;
    Workspaces workspaces;
    bool const debug;

    struct LoadedKey {
        CacheKey key;
        std::uint64_t context_id;
        bool operator==(LoadedKey const&) const = default;
        std::uint64_t hash() const { return key.body.low ^ key.compiler.low ^ context_id * 0x9e3779b97f4a7c15u; }
    };
    cache::Registry<LoadedKey, LoadedImage> loaded;
    cache::Registry<PreparedKey, PreparedKernel> prepared;
    cache::Registry<PreparedKey, PreparedKernel> fallbacks;  // for launches of a shape that `prepared` does not have yet
    PendingPrepares pending;
    Background background;  // the last member: its jobs use the others

    MetricsSnapshot counted() const;  // so far, by this service
    void add_to_totals() const noexcept;

    // params is normalized and valid, here and below.
    struct Admitted {
        Selection selection;
        ArchFacts arch;  // of the image, with the device's SM count
    };
    // What is to be prepared, in the calling thread's context.
    struct Asked {
        XQAParams shape;
        driver::ContextInfo const& context;  // outlives the service
        PreparedKey key;
    };
    static Result<Asked> asked(XQAParams const& params);
    // Whether it is loaded, which counts as a hit; else the shape is recorded.
    bool has(Asked const& asked);
    // What a shape gets in a context, or the rules that refuse it. Loads and compiles nothing.
    Result<Admitted> admit_in(driver::ContextInfo const& context, XQAParams const& params) const;
    Result<PreparedKernel*> prepare_in(driver::ContextInfo const& context, XQAParams const& params, PreparedKey const& key);
    // Begins prepare_in() in the background, and that of the fallback where the shape has one: OK once it is begun or under way. A failed
    // one is begun anew if `again`, else it is the result.
    Status begin_prepare(driver::ContextInfo const& context, XQAParams const& params, PreparedKey const& key,
                         Admitted const& admitted, bool again);
    // What a launch runs under on_miss fallback: begins the shape's own kernel where nothing has. NOT_PREPARED: nothing is loaded.
    Result<PreparedKernel*> find_fallback(driver::ContextInfo const& context, XQAParams const& params, PreparedKey const& key);
    Status prepare_fallback(driver::ContextInfo const& context, Admitted const& admitted, PreparedKey const& key);
    Result<SpecifiedKernel> load_in(driver::ContextInfo const& context, KernelSpec const& spec);
};

// What a launch with these bounds is planned by. forced: the shape with the settings' overrides.
LaunchBounds bounds_of(XQAParams const& forced, ArchFacts const& arch, std::uint32_t batch, std::uint64_t max_len,
                       std::uint32_t q_len);

// Whether such a launch passes the perf gate: below it Selection::below_gate runs, where there is one.
bool passes_gate(XQAParams const& forced, LaunchBounds const& bounds);
// xqajit::workspace_size() for whichever of the kernels a launch runs.
Result<std::uint64_t> workspace_size_of(Selection const& selection, LaunchBounds const& bounds);

// Defaults filled in and every range checked.
Result<XQAParams> checked(XQAParams const& params);

CompileRequest request_of(KernelSpec const& spec);

}  // namespace xqajit
