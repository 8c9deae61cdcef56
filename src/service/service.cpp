#include "service/service.h"

#include "base/log.h"
#include "cache/embedded_bundle.h"
#include "service/impl.h"

namespace xqajit {
namespace {

std::shared_ptr<cache::DiskStore> open_store(Settings const& settings, std::string const& cache_dir) {
    std::uint64_t const max_bytes = settings.size(SettingId::kCacheMaxSize);
    if (!cache_dir.empty()) return cache::DiskStore::open({cache_dir, "argument"}, max_bytes);
    Result<cache::StoreOrigin> const origin = cache::default_store(settings.text(SettingId::kCacheDir));
    if (origin.ok() && !origin->warning.empty()) log::warning(origin->warning + "; " + origin->path + " is used");
    return origin.ok() ? cache::DiskStore::open(*origin, max_bytes) : cache::DiskStore::disabled(origin.status().message());
}

std::shared_ptr<cache::Remote> open_remote(Settings const& settings) {
    cache::RemoteOptions options;
    options.url = settings.text(SettingId::kRemoteCache);
    options.writes = settings.flag(SettingId::kRemoteCacheWrite);
    options.key_file = settings.text(SettingId::kCacheKeyFile);
    options.allow_unsigned = settings.flag(SettingId::kRemoteAllowUnsigned);
    options.timeout = std::chrono::milliseconds(settings.integer(SettingId::kRemoteTimeout));
    return std::make_shared<cache::Remote>(std::move(options));
}

}  // namespace

Service::Service() = default;
Service::~Service() {
    if (impl_ == nullptr) return;
    impl_->images.stop();
    impl_->background.stop();
    impl_->remote->close();
    impl_->add_to_totals();
}

Result<std::unique_ptr<Service>> Service::create(std::string const& cache_dir) {
    Result<Settings> settings = Settings::from_environment();
    if (!settings.ok()) return settings.status();
    Result<Overrides> overrides = overrides_from(*settings);
    if (!overrides.ok()) return overrides.status();
    XQAJIT_RETURN_IF_ERROR(check_arch_setting(*settings));
    if (auto const level = log::parse_level(settings->text(SettingId::kLogLevel))) log::set_level(*level);
    for (std::string const& warning : settings->warnings()) log::warning(warning);
    for (std::string const& warning : arch_setting_warnings(*settings)) log::warning(warning);

    std::unique_ptr<Service> service(new Service);
    std::shared_ptr<cache::DiskStore> store = open_store(*settings, cache_dir);
    auto layers = std::make_shared<cache::Layers const>(settings->text(SettingId::kCacheLayers), cache::embedded_bundle());
    std::shared_ptr<cache::Remote> remote = open_remote(*settings);
    service->impl_ = std::make_unique<Impl>(std::move(settings).value(), std::move(overrides).value(), std::move(store),
                                            std::move(layers), std::move(remote));
    return service;
}

xqajit_stats Service::stats() const {
    xqajit_stats stats = XQAJIT_STATS_INIT;
    MetricsSnapshot const counted = impl_->counted();
    stats.memory_hits = counted.hits[static_cast<std::size_t>(Layer::kMemory)];
    for (Layer const layer : {Layer::kUser, Layer::kSystem, Layer::kBundle})
        stats.disk_hits += counted.hits[static_cast<std::size_t>(layer)];
    stats.compiles = counted.compiles;
    stats.compile_failures = counted.compile_failures;
    stats.quarantined = counted.quarantined;
    stats.launches = counted.launches;
    stats.compile_seconds = static_cast<double>(counted.phases[static_cast<std::size_t>(Phase::kCompile)].nanoseconds) / 1e9;
    stats.lock_waits = counted.lock_waits;
    stats.misses = counted.misses;
    return stats;
}

}  // namespace xqajit
