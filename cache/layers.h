// The read-only layers below the cache directory: directories and bundles that the operator names, and the bundle that the library was
// built with. Their trust is their owner's and their mode's: no signature is asked for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/bundle.h"
#include "cache/disk_store.h"

namespace xqajit::cache {

enum class LayerKind { kUnusable, kDirectory, kBundle };

struct LayerState {
    std::string path;    // as named; "" of the embedded bundle
    std::string origin;  // "XQAJIT_CACHE_LAYERS" or "embedded"
    LayerKind kind = LayerKind::kUnusable;
    std::string reason;       // why it is not usable; else empty
    std::size_t entries = 0;  // of a bundle
    std::uint64_t bytes = 0;  // of a bundle
};

struct LayerEntry {
    Entry entry;
    LayerKind kind;
};

// Thread-safe. The layers are opened once: one that is missing then stays so. One that is not usable is logged, as a warning, and missed.
class Layers {
public:
    // setting: absolute paths with colons between, the first is looked into first. embedded: a bundle, the last layer; "": none. It
    // outlives the layers.
    Layers(std::string_view setting, std::string_view embedded);

    // Of the first layer that has a good one. A damaged one is a miss, and stays where it is; load() logs the first of each layer.
    std::optional<LayerEntry> load(CacheKey const& key) const;
    std::optional<LayerEntry> load_any_compiler(Digest const& body) const;
    std::optional<LayerEntry> peek(CacheKey const& key) const;
    std::optional<LayerEntry> peek_any_compiler(Digest const& body) const;

    std::vector<LayerState> states() const;

private:
    struct Layer {
        LayerState state;
        std::shared_ptr<DiskStore> store;      // of a directory
        std::shared_ptr<Bundle const> bundle;  // of a bundle
        mutable std::atomic<bool> warned{false};
    };
    enum class Trace { kNone, kLog };
    void add(std::string const& path);
    static void open(Layer& layer, Result<std::shared_ptr<Bundle const>> bundle);
    static std::optional<Entry> read(Layer const& layer, BundleRecord const* record, Trace trace);
    static std::optional<Entry> read_any_compiler(Layer const& layer, Digest const& body, Trace trace);
    std::optional<LayerEntry> find(CacheKey const& key, Trace trace) const;
    std::optional<LayerEntry> find_any_compiler(Digest const& body, Trace trace) const;

    std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace xqajit::cache
