#include "cache/layers.h"

#include "base/log.h"
#include "base/split.h"
#include "cache/directory.h"
#include "cache/metadata.h"

namespace xqajit::cache {

Layers::Layers(std::string_view setting, std::string_view embedded) {
    for (std::string const& path : split(setting, ":")) add(path);
    if (!embedded.empty()) {
        Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
        layer.state.origin = "embedded";
        open(layer, Bundle::view(embedded, "in the library"));
    }
    for (std::unique_ptr<Layer> const& layer : layers_)
        if (layer->state.kind == LayerKind::kUnusable) log::warning(layer->state.reason + "; it is left out");
}

void Layers::add(std::string const& path) {
    Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
    layer.state.path = path;
    layer.state.origin = "XQAJIT_CACHE_LAYERS";
    Result<OpenedLayer> opened = open_layer_path(path);
    if (!opened.ok()) {
        layer.state.reason = opened.status().message();
    } else if (opened->is_directory) {
        layer.state.kind = LayerKind::kDirectory;
        layer.store = DiskStore::layer({path, layer.state.origin}, std::move(opened->descriptor));
    } else {
        open(layer, Bundle::open(std::move(opened->descriptor), path));
    }
}

void Layers::open(Layer& layer, Result<std::shared_ptr<Bundle const>> bundle) {
    if (!bundle.ok()) {
        layer.state.reason = bundle.status().message();
        return;
    }
    layer.bundle = std::move(bundle).value();
    layer.state.kind = LayerKind::kBundle;
    layer.state.entries = layer.bundle->records().size();
    layer.state.bytes = layer.bundle->bytes();
}

std::optional<Entry> Layers::read(Layer const& layer, BundleRecord const* record, Trace trace) {
    if (record == nullptr) return std::nullopt;
    Result<Entry> entry = layer.bundle->read(*record);
    if (entry.ok()) return std::move(*entry);
    if (trace == Trace::kLog && !layer.warned.exchange(true)) log::warning(entry.status().message());
    return std::nullopt;
}

std::optional<Entry> Layers::read_any_compiler(Layer const& layer, Digest const& body, Trace trace) {
    std::optional<Entry> best;
    CompilerRank best_rank;
    for (BundleRecord const& record : layer.bundle->of_body(body)) {
        CompilerRank rank = compiler_rank(record.metadata);
        if (best && rank < best_rank) continue;
        std::optional<Entry> entry = read(layer, &record, trace);
        if (!entry) continue;
        best = std::move(entry);
        best_rank = std::move(rank);
    }
    return best;
}

std::optional<LayerEntry> Layers::find(CacheKey const& key, Trace trace) const {
    for (std::unique_ptr<Layer> const& layer : layers_) {
        std::optional<Entry> entry;
        if (layer->store != nullptr) entry = trace == Trace::kLog ? layer->store->load(key) : layer->store->peek(key);
        if (layer->bundle != nullptr) entry = read(*layer, layer->bundle->find(key), trace);
        if (entry) return LayerEntry{std::move(*entry), layer->state.kind};
    }
    return std::nullopt;
}

std::optional<LayerEntry> Layers::find_any_compiler(Digest const& body, Trace trace) const {
    for (std::unique_ptr<Layer> const& layer : layers_) {
        std::optional<Entry> entry;
        if (layer->store != nullptr)
            entry = trace == Trace::kLog ? layer->store->load_any_compiler(body) : layer->store->peek_any_compiler(body);
        if (layer->bundle != nullptr) entry = read_any_compiler(*layer, body, trace);
        if (entry) return LayerEntry{std::move(*entry), layer->state.kind};
    }
    return std::nullopt;
}

std::optional<LayerEntry> Layers::load(CacheKey const& key) const { return find(key, Trace::kLog); }
std::optional<LayerEntry> Layers::load_any_compiler(Digest const& body) const { return find_any_compiler(body, Trace::kLog); }
std::optional<LayerEntry> Layers::peek(CacheKey const& key) const { return find(key, Trace::kNone); }
std::optional<LayerEntry> Layers::peek_any_compiler(Digest const& body) const { return find_any_compiler(body, Trace::kNone); }

std::vector<LayerState> Layers::states() const {
    std::vector<LayerState> states;
    for (std::unique_ptr<Layer> const& layer : layers_) states.push_back(layer->state);
    return states;
}

}  // namespace xqajit::cache
