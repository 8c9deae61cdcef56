#include "service/kernel_images.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/subprocess.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

std::string describe(CompileRequest const& request, CacheKey const& key) {
    return fmt::format("{} {} {}", family_name(request.family), request.target, key.body.hex().substr(0, 12));
}

std::shared_ptr<KernelImage const> from_disk(cache::Entry&& entry, Layer layer) {
    return std::make_shared<KernelImage const>(
        KernelImage{entry.key, std::move(entry.image), entry.is_ptx, true, std::move(entry.metadata), layer});
}

std::shared_ptr<KernelImage const> from_layer(cache::LayerEntry&& found) {
    return from_disk(std::move(found.entry), found.kind == cache::LayerKind::kBundle ? Layer::kBundle : Layer::kSystem);
}

// The user's directory first: what is compiled anew there goes before a layer's.
template <class Below> std::shared_ptr<KernelImage const> first_of(std::optional<cache::Entry>&& users, Below const& below) {
    if (users) return from_disk(std::move(*users), Layer::kUser);
    std::optional<cache::LayerEntry> found = below();
    return found ? from_layer(std::move(*found)) : nullptr;
}

template <class Exact, class Any> std::shared_ptr<KernelImage const> find(ImageKey const& key, Exact const& exact, Any const& any) {
    std::shared_ptr<KernelImage const> image;
    if (key.compiler.ok()) image = exact(key.key);
    if (image == nullptr && key.any_compiler) image = any(key.key.body);
    return image;
}

}  // namespace

KernelImages::KernelImages(Settings const& settings, std::shared_ptr<cache::DiskStore> store,
                           std::shared_ptr<cache::Layers const> layers, std::shared_ptr<cache::Remote> remote, Toolchain& toolchain,
                           Metrics& metrics)
    : settings_(settings),
      store_(std::move(store)),
      layers_(std::move(layers)),
      remote_(std::move(remote)),
      toolchain_(toolchain),
      metrics_(metrics) {}

ImageKey KernelImages::key_of(CompileRequest const& request) { return with_compiler(key_for(request, Digest{}).body); }

ImageKey KernelImages::with_compiler(Digest const& body) {
    ImageKey result;
    Result<NvrtcIdentity> const nvrtc = toolchain_.identity();
    result.key = {body, nvrtc.ok() ? nvrtc->build : Digest{}};
    result.compiler = nvrtc.status();
    std::string const& match = settings_.text(SettingId::kCompilerMatch);
    result.any_compiler = match == "any" || (match != "exact" && !nvrtc.ok());
    return result;
}

Result<std::shared_ptr<KernelImage const>> KernelImages::get(CompileRequest const& request) {
    ImageKey const key = key_of(request);
    Result<Slot*> const slot = slots_.get_or_build({key.key}, [&]() -> Result<std::unique_ptr<Slot>> {
        auto built = std::make_unique<Slot>();
        built->image = load(request, key);
        if (built->image == nullptr) {
            Result<std::shared_ptr<KernelImage const>> compiled = compile_once(request, key);
            if (!compiled.ok()) return compiled.status();
            built->image = *compiled;
        }
        return built;
    });
    if (!slot.ok()) return slot.status();
    std::lock_guard const lock((*slot)->mutex);
    return (*slot)->image;
}

Result<std::shared_ptr<KernelImage const>> KernelImages::replace(CompileRequest const& request,
                                                                 std::shared_ptr<KernelImage const> const& refused) {
    ImageKey const key = key_of(request);
    Slot* slot = slots_.find({key.key});
    if (slot == nullptr) return get(request);  // NVRTC appeared meanwhile: another key
    std::lock_guard const lock(slot->mutex);
    if (slot->image == refused) {
        Result<std::shared_ptr<KernelImage const>> compiled = compile_once(request, key, refused.get());
        if (!compiled.ok()) return compiled.status();
        slot->image = *compiled;
    }
    return slot->image;
}

bool KernelImages::in_memory(ImageKey const& key) const { return slots_.find({key.key}) != nullptr; }

std::shared_ptr<KernelImage const> KernelImages::peek(ImageKey const& key) const {
    return find(
        key, [&](CacheKey const& exact) { return first_of(store_->peek(exact), [&] { return layers_->peek(exact); }); },
        [&](Digest const& body) {
            return first_of(store_->peek_any_compiler(body), [&] { return layers_->peek_any_compiler(body); });
        });
}

std::shared_ptr<KernelImage const> KernelImages::load(CompileRequest const& request, ImageKey const& key) {
    auto const start = std::chrono::steady_clock::now();
    std::shared_ptr<KernelImage const> image = find(
        key, [&](CacheKey const& exact) { return load_exact(exact); },
        [&](Digest const& body) {
            return first_of(store_->load_any_compiler(body), [&] { return layers_->load_any_compiler(body); });
        });
    if (image == nullptr) {
        ++metrics_.misses;
        return nullptr;
    }
    count_hit(request, key, *image, start);
    bool const copies_layers = settings_.flag(SettingId::kCacheCopyHits);
    if (image->layer == Layer::kRemote || (image->layer != Layer::kUser && copies_layers)) copy_hit(*image);
    return image;
}

// A remote has no listing: what any compiler made is looked for on this machine alone.
std::shared_ptr<KernelImage const> KernelImages::load_exact(CacheKey const& key) {
    std::shared_ptr<KernelImage const> image = first_of(store_->load(key), [&] { return layers_->load(key); });
    if (image != nullptr) return image;
    std::optional<cache::Entry> entry = remote_->load(key);
    return entry ? from_disk(std::move(*entry), Layer::kRemote) : nullptr;
}

void KernelImages::offer(KernelImage const& image) {
    if (remote_->is_writable() && image.layer != Layer::kRemote)
        remote_->offer({image.key, image.metadata, image.is_ptx, image.image});
}

void KernelImages::copy_hit(KernelImage const& image) {
    cache::Entry const entry{image.key, image.metadata, image.is_ptx, image.image};
    auto const start = std::chrono::steady_clock::now();
    if (!store_->store(entry).ok()) return;  // it warns once by itself
    metrics_.stored_bytes += entry.image.size();
    metrics_.time(Phase::kStore, std::chrono::steady_clock::now() - start);
}

void KernelImages::count_hit(CompileRequest const& request, ImageKey const& key, KernelImage const& image,
                             std::chrono::steady_clock::time_point start) {
    std::chrono::duration<double, std::milli> const elapsed = std::chrono::steady_clock::now() - start;
    metrics_.count_hit(image.layer);
    metrics_.read_bytes += image.image.size();
    metrics_.time(Phase::kRead, std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed));
    if (!log::enabled(log::Level::kInfo)) return;
    char const* const place = image.layer == Layer::kRemote ? "remote" : "disk";
    log::info(fmt::format("{}: {} hit ({}) in {:.2f} ms, {} bytes{}", describe(request, image.key), place,
                          kLayerNames[static_cast<std::size_t>(image.layer)], elapsed.count(), image.image.size(),
                          image.key != key.key ? ", compiled by another NVRTC (" + nvrtc_version_of(image.metadata) + ")" : ""));
}

cache::KeyLock KernelImages::lock(CompileRequest const& request, CacheKey const& key, bool wait,
                                  std::function<bool()> const& is_stopped) {
    std::uint64_t const seconds = wait ? settings_.integer(SettingId::kLockTimeout) : 0;
    auto const waits = [&] {
        log::warning(fmt::format("{}: waiting for another process that compiles it into {}, up to {} s", describe(request, key),
                                 store_->state().effective_path, seconds));
    };
    auto const start = std::chrono::steady_clock::now();
    cache::KeyLock lock = store_->lock(key, {std::chrono::seconds(seconds), waits, is_stopped});
    if (seconds != 0 && lock.waited()) {
        ++metrics_.lock_waits;
        metrics_.time(Phase::kLockWait, std::chrono::steady_clock::now() - start);
    }
    bool const stopped = is_stopped && is_stopped();
    if (seconds != 0 && !stopped && lock.state() == cache::KeyLock::State::kBusy) {
        log::warning(fmt::format("{}: compiled here too, as another process has not ended its compile in {} s",
                                 describe(request, key), seconds));
    }
    return lock;
}

// A peek: load() has set aside already what is damaged, and counted it.
std::shared_ptr<KernelImage const> KernelImages::published(CompileRequest const& request, ImageKey const& key,
                                                           cache::KeyLock const& lock, KernelImage const* refused) {
    using State = cache::KeyLock::State;
    if (lock.state() == State::kUnmade || lock.state() == State::kRefused) return nullptr;
    auto const start = std::chrono::steady_clock::now();
    std::shared_ptr<KernelImage const> image = peek(key);
    // The metadata has the time of the compile: of the same bytes, made anew, it is another.
    if (image != nullptr && refused != nullptr && image->metadata == refused->metadata && image->image == refused->image)
        return nullptr;
    if (image != nullptr) count_hit(request, key, *image, start);
    return image;
}

Result<std::shared_ptr<KernelImage const>> KernelImages::compile_once(CompileRequest const& request, ImageKey const& key,
                                                                      KernelImage const* refused) {
    if (!key.compiler.ok()) return compile(request, key);  // which says what is missing
    auto const is_stopped = [this] { return is_set(&stop_); };
    cache::KeyLock held = lock(request, key.key, /*wait=*/true, is_stopped);
    if (std::shared_ptr<KernelImage const> image = published(request, key, held, refused)) return image;
    if (is_stopped()) return Status(XQAJIT_INTERRUPTED, "the service is being destroyed");
    Result<std::shared_ptr<KernelImage const>> compiled = compile(request, key);
    if (!compiled.ok()) held.abandon();
    return compiled;
}

Result<std::shared_ptr<KernelImage const>> KernelImages::compile(CompileRequest const& request, ImageKey const& key) {
    if (!key.compiler.ok()) {
        return unavailable(
            fmt::format("no compiled kernel for {} {} in memory or on disk, and none can be compiled: {}; prewarm key {}",
                        family_name(request.family), request.target, key.compiler.message(), key.key.body.hex()));
    }
    WorkerWatch watch{&stop_, false};
    Result<CompiledImage> compiled = toolchain_.compile(request, &watch);
    if (!compiled.ok()) {
        if (compiled.status().code() != XQAJIT_INTERRUPTED) count_failure();
        return compiled.status();
    }
    return keep(request, key.key, std::move(*compiled), nullptr);
}

std::shared_ptr<KernelImage const> KernelImages::keep(CompileRequest const& request, CacheKey const& key, CompiledImage&& compiled,
                                                      Status* stored) {
    ++metrics_.compiles;
    metrics_.time(Phase::kCompile, std::chrono::nanoseconds(std::llround(compiled.compile_ms * 1e6)));
    if (log::enabled(log::Level::kInfo)) {
        log::info(
            fmt::format("{}: compiled in {:.0f} ms, {} bytes", describe(request, key), compiled.compile_ms, compiled.image.size()));
    }
    cache::Entry entry{key, metadata_of(request, compiled), compiled.is_ptx, std::move(compiled.image)};
    auto const start = std::chrono::steady_clock::now();
    Status status = store_->store(entry);  // warns once by itself
    if (status.ok()) {
        metrics_.stored_bytes += entry.image.size();
        metrics_.time(Phase::kStore, std::chrono::steady_clock::now() - start);
    }
    if (stored != nullptr) *stored = std::move(status);
    remote_->store(entry);
    return std::make_shared<KernelImage const>(
        KernelImage{key, std::move(entry.image), entry.is_ptx, false, std::move(entry.metadata)});
}

}  // namespace xqajit
