// What XQAJIT_* settings force on selection and launch. Settings::parse() has checked every value against its table; this gives the
// accepted words their meaning, and refuses a word that it has none for.
#include <fmt/format.h>

#include <algorithm>

#include "select/select.h"

namespace xqajit {

namespace {

struct Choice {
    std::string_view name;
    std::int32_t value;
};

constexpr Choice kNumerics[] = {{"", XQAJIT_NUMERIC_DEFAULT}, {"exact16", XQAJIT_NUMERIC_EXACT16}, {"fp8", XQAJIT_NUMERIC_FP8}};
constexpr Choice kDivisions[] = {{"", XQAJIT_DIVISION_DEFAULT},
                                 {"static", XQAJIT_DIVISION_STATIC},
                                 {"balanced", XQAJIT_DIVISION_BALANCED},
                                 {"invariant", XQAJIT_DIVISION_INVARIANT}};
constexpr Choice kOnMisses[] = {{"", XQAJIT_ON_MISS_DEFAULT},
                                {"compile", XQAJIT_ON_MISS_COMPILE},
                                {"fallback", XQAJIT_ON_MISS_FALLBACK},
                                {"refuse", XQAJIT_ON_MISS_REFUSE}};
constexpr Choice kSwitches[] = {{"off", 0}, {"on", 1}};
constexpr Choice kGates[] = {{"off", 0}, {"reference", 1}};

Status refuse(SettingId id, std::string_view value) {
    Setting const& setting = settings_table()[static_cast<std::size_t>(id)];
    return invalid_argument(fmt::format("{} is \"{}\": accepted is {}", setting.name, value, setting.accepted));
}

Result<std::int32_t> meaning(Settings const& settings, SettingId id, std::span<Choice const> choices) {
    for (Choice const& choice : choices) {
        if (settings.text(id) == choice.name) return choice.value;
    }
    return refuse(id, settings.text(id));
}

}  // namespace

Result<Overrides> overrides_from(Settings const& settings) {
    Overrides overrides;
    for (std::string const& name : settings.list(SettingId::kForceKernel)) {
        std::optional<Family> const family = family_from_name(name);
        if (!family) return refuse(SettingId::kForceKernel, name);
        std::vector<Family>& order = overrides.force_kernel;
        if (std::find(order.begin(), order.end(), *family) == order.end()) order.push_back(*family);
    }
    Result<std::int32_t> const numeric = meaning(settings, SettingId::kNumeric, kNumerics);
    if (!numeric.ok()) return numeric.status();
    overrides.numeric = *numeric;
    Result<std::int32_t> const division = meaning(settings, SettingId::kDivision, kDivisions);
    if (!division.ok()) return division.status();
    overrides.division = *division;
    overrides.nb_sub_seq = static_cast<std::uint32_t>(settings.integer(SettingId::kNbSubSeq));
    if (settings.get(SettingId::kPdl).is_set) {
        Result<std::int32_t> const pdl = meaning(settings, SettingId::kPdl, kSwitches);
        if (!pdl.ok()) return pdl.status();
        overrides.pdl = *pdl != 0;
    }
    Result<std::int32_t> const gate = meaning(settings, SettingId::kPerfGate, kGates);
    if (!gate.ok()) return gate.status();
    overrides.perf_gate = *gate != 0;
    Result<std::int32_t> const on_miss = meaning(settings, SettingId::kOnMiss, kOnMisses);
    if (!on_miss.ok()) return on_miss.status();
    overrides.on_miss = *on_miss;
    return overrides;
}

}  // namespace xqajit
