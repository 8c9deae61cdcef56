// What was counted: by a service, and by all that used its cache directory.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "service/impl.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kTotalsSchema[] = "xqajit.totals/1";

Result<MetricsSnapshot> parse_totals(std::string const& text) {
    if (text.empty()) return MetricsSnapshot{};
    Json const json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || json.value("schema", Json()) != kTotalsSchema)
        return Status(XQAJIT_CACHE_CORRUPT, fmt::format("metrics: no JSON with the schema {}", kTotalsSchema));
    return metrics_from_json(json.value("metrics", Json()));
}

Status check_choice(char const* field, std::int32_t value, std::int32_t most) {
    if (value >= 0 && value <= most) return {};
    return invalid_argument(fmt::format("{} is {}: accepted are 0..{}", field, value, most));
}

}  // namespace

MetricsSnapshot Service::Impl::counted() const {
    MetricsSnapshot snapshot = metrics.snapshot();
    snapshot.quarantined = store->quarantined();
    cache::RemoteCounts const remote_counts = remote->counts();
    snapshot.remote_errors = remote_counts.errors;
    snapshot.remote_refused = remote_counts.refused;
    snapshot.remote_stored = remote_counts.stored;
    snapshot.remote_not_stored = remote_counts.not_stored;
    return snapshot;
}

// Never fails: a directory that cannot be written keeps no sums, as it keeps no kernels.
void Service::Impl::add_to_totals() const noexcept {
    try {
        MetricsSnapshot const mine = counted();
        if (mine.is_zero()) return;
        Status const status = store->update_totals([&](Result<std::string> const& before) {
            Result<MetricsSnapshot> const totals = before.ok() ? parse_totals(*before) : Result<MetricsSnapshot>(before.status());
            if (!totals.ok()) log::warning(fmt::format("the totals of the cache begin anew: {}", totals.status().message()));
            MetricsSnapshot sum = totals.ok() ? *totals : MetricsSnapshot{};
            sum.add(mine);
            return to_text({{"schema", kTotalsSchema}, {"metrics", to_json(sum)}}) + "\n";
        });
        if (!status.ok()) log::debug(fmt::format("not added to the totals of the cache: {}", status.message()));
    } catch (std::exception const& error) {
        log::warning(error.what());
    }
}

Result<std::string> Service::metrics(std::int32_t scope, std::int32_t format) {
    XQAJIT_RETURN_IF_ERROR(check_choice("scope", scope, XQAJIT_METRICS_CACHE));
    XQAJIT_RETURN_IF_ERROR(check_choice("format", format, XQAJIT_METRICS_PROMETHEUS));
    MetricsSnapshot snapshot = impl_->counted();
    if (scope == XQAJIT_METRICS_CACHE) {
        Result<std::string> const text = impl_->store->totals();
        if (!text.ok()) return text.status();
        Result<MetricsSnapshot> const totals = parse_totals(*text);
        if (!totals.ok()) {
            return Status(totals.status().code(),
                          fmt::format("{} of {}: {}; the next process that counts begins it anew", cache::kTotals,
                                      impl_->store->state().effective_path, totals.status().message()));
        }
        snapshot.add(*totals);
    }
    if (format == XQAJIT_METRICS_PROMETHEUS) return to_prometheus(snapshot);
    Json json = {{"schema", "xqajit.metrics/1"}, {"scope", scope == XQAJIT_METRICS_CACHE ? "cache" : "service"}};
    json.update(to_json(snapshot));
    return to_text(json, 1);
}

}  // namespace xqajit
