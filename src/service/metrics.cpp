#include "service/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

struct CounterRow {
    char const* member;      // of the JSON object
    char const* prometheus;  // its name there
    char const* help;
    std::uint64_t MetricsSnapshot::*value;
};

// clang-format off
constexpr CounterRow kCounters[] = {
    {"misses",           "xqajit_misses_total",              "Kernels that no layer had when they were first looked for.",      &MetricsSnapshot::misses},
    {"compiles",         "xqajit_compiles_total",            "Kernels that were compiled.",                                     &MetricsSnapshot::compiles},
    {"compile_failures", "xqajit_compile_failures_total",    "Compiles that gave no kernel.",                                   &MetricsSnapshot::compile_failures},
    {"read_bytes",       "xqajit_read_bytes_total",          "Bytes of the images that were taken from disk.",                  &MetricsSnapshot::read_bytes},
    {"stored_bytes",     "xqajit_stored_bytes_total",        "Bytes of the images that were stored on disk.",                   &MetricsSnapshot::stored_bytes},
    {"quarantined",      "xqajit_quarantined_entries_total", "Entries that failed their checks and were set aside.",            &MetricsSnapshot::quarantined},
    {"lock_waits",       "xqajit_lock_waits_total",          "Waits for another process that compiled the same kernel.",        &MetricsSnapshot::lock_waits},
    {"launches",         "xqajit_launches_total",            "Kernels that were launched.",                                     &MetricsSnapshot::launches},
    {"fallbacks",        "xqajit_fallbacks_total",           "Launches of mmha in place of a kernel that was not loaded yet.",   &MetricsSnapshot::fallbacks},
    {"remote_errors",     "xqajit_remote_errors_total",       "Requests to the remote cache that got no usable answer.",          &MetricsSnapshot::remote_errors},
    {"remote_refused",    "xqajit_remote_refused_total",      "Entries of the remote cache that were unsigned, forged or damaged.", &MetricsSnapshot::remote_refused},
    {"remote_stored",     "xqajit_remote_stored_total",       "Entries that were put into the remote cache.",                     &MetricsSnapshot::remote_stored},
    {"remote_not_stored", "xqajit_remote_not_stored_total",   "Entries that were to be put into the remote cache, and were not.", &MetricsSnapshot::remote_not_stored},
};
// clang-format on

double seconds_of(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

Json duration_json(DurationCounts const& counts) {
    Json buckets = Json::array();
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
        cumulative += counts.buckets[i];
        Json edge = i < std::size(kBucketEdges) ? Json(seconds_of(kBucketEdges[i].nanoseconds)) : Json(nullptr);
        buckets.push_back({{"le", std::move(edge)}, {"count", cumulative}});
    }
    return {{"count", cumulative}, {"sum", seconds_of(counts.nanoseconds)}, {"buckets", std::move(buckets)}};
}

Status wrong(std::string const& what) { return {XQAJIT_CACHE_CORRUPT, "metrics: " + what}; }

Status read_count(Json const& object, char const* member, std::uint64_t& value) {
    auto const found = object.find(member);
    if (found == object.end()) return {};
    if (!found->is_number_unsigned()) return wrong(fmt::format("{} is no count", member));
    value = found->get<std::uint64_t>();
    return {};
}

Status read_duration(Json const& phase, char const* name, DurationCounts& counts) {
    auto const wrong_phase = [&](char const* what) { return wrong(fmt::format("seconds.{} {}", name, what)); };
    if (!phase.is_object()) return wrong_phase("is no object");
    Json const sum = phase.value("sum", Json());
    Json const buckets = phase.value("buckets", Json());
    constexpr double kMostSeconds = 1e10;  // as many nanoseconds as 64 bits hold, about
    if (!sum.is_number() || !(sum.get<double>() >= 0 && sum.get<double>() < kMostSeconds)) return wrong_phase("has no sum");
    if (!buckets.is_array() || buckets.size() != kBuckets) return wrong_phase("has other buckets than this version");
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
        std::uint64_t cumulative = 0;
        if (!buckets[i].is_object() || !read_count(buckets[i], "count", cumulative).ok() || cumulative < before)
            return wrong_phase("has a bucket that is smaller than the one before it");
        counts.buckets[i] = cumulative - before;
        before = cumulative;
    }
    counts.nanoseconds = static_cast<std::uint64_t>(std::llround(sum.get<double>() * 1e9));
    return {};
}

void add_head(std::string& text, char const* name, char const* type, char const* help) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

void add_phase(std::string& text, char const* phase, DurationCounts const& counts) {
    std::uint64_t cumulative = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
        cumulative += counts.buckets[i];
        char const* const edge = i < std::size(kBucketEdges) ? kBucketEdges[i].seconds : "+Inf";
        text += fmt::format("xqajit_phase_seconds_bucket{{phase=\"{}\",le=\"{}\"}} {}\n", phase, edge, cumulative);
    }
    text += fmt::format("xqajit_phase_seconds_sum{{phase=\"{}\"}} {}\n", phase, seconds_of(counts.nanoseconds));
    text += fmt::format("xqajit_phase_seconds_count{{phase=\"{}\"}} {}\n", phase, cumulative);
}

}  // namespace

void MetricsSnapshot::add(MetricsSnapshot const& other) {
    for (std::size_t i = 0; i < kLayers; ++i) hits[i] += other.hits[i];
    for (CounterRow const& row : kCounters) this->*row.value += other.*row.value;
    for (std::size_t i = 0; i < kPhases; ++i) {
        for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) phases[i].buckets[bucket] += other.phases[i].buckets[bucket];
        phases[i].nanoseconds += other.phases[i].nanoseconds;
    }
}

bool MetricsSnapshot::is_zero() const {
    auto const zero = [](std::uint64_t value) { return value == 0; };
    return std::all_of(hits.begin(), hits.end(), zero) &&
           std::all_of(std::begin(kCounters), std::end(kCounters), [&](CounterRow const& row) { return this->*row.value == 0; }) &&
           std::all_of(phases.begin(), phases.end(), [](DurationCounts const& phase) { return phase.count() == 0; });
}

MetricsSnapshot Metrics::snapshot() const {
    MetricsSnapshot snapshot;
    for (std::size_t i = 0; i < kLayers; ++i) snapshot.hits[i] = hits_[i].total();
    snapshot.misses = misses;
    snapshot.compiles = compiles;
    snapshot.compile_failures = compile_failures;
    snapshot.read_bytes = read_bytes;
    snapshot.stored_bytes = stored_bytes;
    snapshot.lock_waits = lock_waits;
    snapshot.launches = launches_.total();
    snapshot.fallbacks = fallbacks_.total();
    for (std::size_t i = 0; i < kPhases; ++i) snapshot.phases[i] = phases_[i].counts();
    return snapshot;
}

Json to_json(MetricsSnapshot const& metrics) {
    Json json = {{"hits", Json::object()}};
    for (std::size_t i = 0; i < kLayers; ++i) json["hits"][kLayerNames[i]] = metrics.hits[i];
    for (CounterRow const& row : kCounters) json[row.member] = metrics.*row.value;
    json["seconds"] = Json::object();
    for (std::size_t i = 0; i < kPhases; ++i) json["seconds"][kPhaseNames[i]] = duration_json(metrics.phases[i]);
    return json;
}

Result<MetricsSnapshot> metrics_from_json(Json const& json) {
    if (!json.is_object()) return wrong("no JSON object");
    Json const hits = json.value("hits", Json::object());
    Json const seconds = json.value("seconds", Json::object());
    if (!hits.is_object()) return wrong("hits is no object");
    if (!seconds.is_object()) return wrong("seconds is no object");
    MetricsSnapshot metrics;
    for (std::size_t i = 0; i < kLayers; ++i) XQAJIT_RETURN_IF_ERROR(read_count(hits, kLayerNames[i], metrics.hits[i]));
    for (CounterRow const& row : kCounters) XQAJIT_RETURN_IF_ERROR(read_count(json, row.member, metrics.*row.value));
    for (std::size_t i = 0; i < kPhases; ++i) {
        if (!seconds.contains(kPhaseNames[i])) continue;
        XQAJIT_RETURN_IF_ERROR(read_duration(seconds[kPhaseNames[i]], kPhaseNames[i], metrics.phases[i]));
    }
    return metrics;
}

std::string to_prometheus(MetricsSnapshot const& metrics) {
    std::string text;
    add_head(text, "xqajit_hits_total", "counter", "Kernels that were found, by the layer that had them.");
    for (std::size_t i = 0; i < kLayers; ++i)
        text += fmt::format("xqajit_hits_total{{layer=\"{}\"}} {}\n", kLayerNames[i], metrics.hits[i]);
    for (CounterRow const& row : kCounters) {
        add_head(text, row.prometheus, "counter", row.help);
        text += fmt::format("{} {}\n", row.prometheus, metrics.*row.value);
    }
    add_head(text, "xqajit_phase_seconds", "histogram", "How long each step took on the way to a loaded kernel.");
    for (std::size_t i = 0; i < kPhases; ++i) add_phase(text, kPhaseNames[i], metrics.phases[i]);
    return text;
}

}  // namespace xqajit
