// What a service counted, as numbers and as documents: JSON, and the text exposition format of Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "service/counters.h"

namespace xqajit {

// The counters as they stood at one moment. A counter is a member here, one in Metrics and a line of the table in metrics.cpp.
struct MetricsSnapshot {
    std::array<std::uint64_t, kLayers> hits{};
    std::uint64_t misses = 0;
    std::uint64_t compiles = 0;
    std::uint64_t compile_failures = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t quarantined = 0;
    std::uint64_t lock_waits = 0;
    std::uint64_t launches = 0;
    std::uint64_t fallbacks = 0;
    std::uint64_t remote_errors = 0;
    std::uint64_t remote_refused = 0;
    std::uint64_t remote_stored = 0;
    std::uint64_t remote_not_stored = 0;
    std::array<DurationCounts, kPhases> phases{};

    void add(MetricsSnapshot const& other);
    bool is_zero() const;
};

// Thread-safe. What a warm launch adds to is striped; the rest is added to where milliseconds pass.
class Metrics {
public:
    void count_hit(Layer layer) noexcept { hits_[static_cast<std::size_t>(layer)].add(); }
    void count_launch() noexcept { launches_.add(); }
    void count_fallback() noexcept { fallbacks_.add(); }
    void time(Phase phase, std::chrono::nanoseconds taken) noexcept { phases_[static_cast<std::size_t>(phase)].add(taken); }

    std::atomic<std::uint64_t> misses{0}, compiles{0}, compile_failures{0}, read_bytes{0}, stored_bytes{0}, lock_waits{0};

    MetricsSnapshot snapshot() const;  // quarantined and remote_*: the store's and the remote's, left 0

private:
    std::array<StripedCounter, kLayers> hits_;
    StripedCounter launches_, fallbacks_;
    std::array<DurationHistogram, kPhases> phases_;
};

// Times a scope.
class PhaseTimer {
public:
    PhaseTimer(Metrics& metrics, Phase phase) : metrics_(metrics), phase_(phase) {}
    PhaseTimer(PhaseTimer const&) = delete;
    ~PhaseTimer() { metrics_.time(phase_, std::chrono::steady_clock::now() - start_); }

private:
    Metrics& metrics_;
    Phase const phase_;
    std::chrono::steady_clock::time_point const start_ = std::chrono::steady_clock::now();
};

// {"hits": {"memory": 1, ...}, "misses": 0, ..., "seconds": {"read": {"count", "sum", "buckets": [{"le", "count"}, ...]}, ...}}. Buckets
// count all up to their edge, as in Prometheus; the last has the edge null.
nlohmann::ordered_json to_json(MetricsSnapshot const& metrics);
// Of what to_json() gives; a counter or a phase that is missing is 0. CACHE_CORRUPT names what is wrong.
Result<MetricsSnapshot> metrics_from_json(nlohmann::ordered_json const& json);
// Version 0.0.4 of the format: names xqajit_*_total and xqajit_phase_seconds, each with HELP and TYPE.
std::string to_prometheus(MetricsSnapshot const& metrics);

}  // namespace xqajit
