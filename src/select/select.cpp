#include "select/select.h"

#include <fmt/format.h>

#include <algorithm>

namespace xqajit {

namespace {

constexpr RuleKind kChoiceRules[] = {RuleKind::kChoice};

struct ChoiceStep {
    Family family;
    char const* reason;
};

// First admitted wins.
constexpr ChoiceStep kChoiceOrder[] = {
    {Family::kMla, "choice.mla: an MLA shape"},
    {Family::kGmma, "choice.gmma: tensor cores, and tensor maps for K and V"},
    {Family::kHmma, "choice.hmma: tensor cores, where gmma does not admit the shape"},
    {Family::kMmha, "choice.mmha: no other family admits the shape"},
};

Admission const& of(std::span<Admission const> admissions, Family family) {
    return *std::find_if(admissions.begin(), admissions.end(), [family](Admission const& a) { return a.family == family; });
}

// "hmma (hmma.arch): refused unless ...; mla, mmha (common.position): refused unless ...": neighbours that one rule refused share it.
std::string refusals(std::span<Admission const> admissions) {
    std::string text, families;
    for (std::size_t i = 0; i < admissions.size(); ++i) {
        Admission const& admission = admissions[i];
        if (admission.ok) continue;
        families += fmt::format("{}{}", families.empty() ? "" : ", ", family_name(admission.family));
        if (i + 1 < admissions.size() && admissions[i + 1].rule == admission.rule) continue;
        text += fmt::format("{}{} ({}): {}", text.empty() ? "" : "; ", families, admission.rule, admission.text);
        families.clear();
    }
    return text;
}

std::string chosen_reason(Family chosen, std::span<Admission const> admissions) {
    std::string refused;
    for (ChoiceStep const& step : kChoiceOrder) {
        if (step.family == chosen) return refused.empty() ? step.reason : fmt::format("{} ({})", step.reason, refused);
        refused += fmt::format("{}{}", refused.empty() ? "refused by " : ", ", of(admissions, step.family).rule);
    }
    return refused;
}

std::string names_of(std::span<Family const> families) {
    std::string names;
    for (Family const family : families) names += fmt::format("{}{}", names.empty() ? "" : ",", family_name(family));
    return names;
}

// The first family of the forced order that can compute the shape.
std::optional<Family> forced_family(std::span<Family const> order, std::span<Admission const> admissions) {
    auto const found = std::find_if(order.begin(), order.end(), [&](Family family) { return of(admissions, family).ok; });
    return found == order.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::optional<Family> choose(std::span<Admission const> admissions) {
    for (ChoiceStep const& step : kChoiceOrder) {
        if (of(admissions, step.family).ok) return step.family;
    }
    return std::nullopt;
}

XQAParams overridden(XQAParams const& params, Overrides const& overrides) {
    XQAParams shape = params;
    if (overrides.numeric != XQAJIT_NUMERIC_DEFAULT) shape.numeric = overrides.numeric;
    if (overrides.division != XQAJIT_DIVISION_DEFAULT) shape.division = overrides.division;
    if (overrides.nb_sub_seq != 0) shape.nb_sub_seq = overrides.nb_sub_seq;
    if (overrides.on_miss != XQAJIT_ON_MISS_DEFAULT) shape.on_miss = overrides.on_miss;
    if (overrides.pdl) shape.pdl = *overrides.pdl ? 1 : 0;
    return shape;
}

Result<Selection> select(XQAParams const& params, ArchFacts const& arch, Overrides const& overrides) {
    XQAParams const shape = overridden(params, overrides);
    std::vector<Family> const& order = overrides.force_kernel;
    Selection selection;
    auto const is_forced = [&](Family family) { return std::find(order.begin(), order.end(), family) != order.end(); };
    auto const judged = [&](Family family) {
        return overrides.perf_gate && (family == Family::kHmma || family == Family::kGmma) &&
               of(selection.admissions, Family::kMmha).ok;
    };
    auto const falls_back = [&](Family family) {
        return shape.on_miss == XQAJIT_ON_MISS_FALLBACK && family != Family::kMmha && (order.empty() || is_forced(Family::kMmha)) &&
               of(selection.admissions, Family::kMmha).ok;
    };
    for (Family const family : kFamilies) {
        selection.admissions.push_back(
            admit(family, shape, arch, is_forced(family) ? std::span<RuleKind const>(kChoiceRules) : std::span<RuleKind const>()));
    }

    if (order.empty()) {
        std::optional<Family> const chosen = choose(selection.admissions);
        if (!chosen) {
            return unsupported(
                fmt::format("no kernel family admits {} on {}: {}", to_string(shape), arch.target, refusals(selection.admissions)));
        }
        selection.reason = chosen_reason(*chosen, selection.admissions);
        selection.spec = make_spec(*chosen, shape, arch);
        if (judged(*chosen)) selection.below_gate = make_spec(Family::kMmha, shape, arch);
        if (falls_back(*chosen)) selection.fallback = make_spec(Family::kMmha, shape, arch);
        return selection;
    }

    std::optional<Family> const chosen = forced_family(order, selection.admissions);
    if (!chosen) {
        std::vector<Admission> asked;
        for (Family const family : order) asked.push_back(of(selection.admissions, family));
        return unsupported(fmt::format("XQAJIT_FORCE_KERNEL is {}, and none of these admits {} on {}: {}", names_of(order),
                                       to_string(shape), arch.target, refusals(asked)));
    }
    selection.reason = fmt::format("forced: {} is the first of XQAJIT_FORCE_KERNEL={} that admits the shape", family_name(*chosen),
                                   names_of(order));
    selection.spec = make_spec(*chosen, shape, arch);
    if (falls_back(*chosen)) selection.fallback = make_spec(Family::kMmha, shape, arch);
    return selection;
}

bool perf_gate_passes(XQAParams const& params, std::uint32_t sm_count, std::uint32_t batch, std::uint64_t past_len,
                      bool multi_block) {
    if (params.spec_dec != XQAJIT_SPEC_DEC_NONE || params.mla != 0) return true;
    // As the reference has it: an fp8 cache stays with the tensor-core kernels. (Q is 16-bit in every shape.)
    if (params.kv_dtype == XQAJIT_DTYPE_FP8_E4M3) return true;
    // Blocks that the launch can fill: a quarter of the SMs must have one.
    std::uint64_t const parts = multi_block ? std::max<std::uint64_t>(1, past_len / 128) : 1;
    std::uint64_t const blocks_per_part = std::uint64_t{params.num_kv_heads} * batch * 4;
    return blocks_per_part != 0 && parts >= (sm_count + blocks_per_part - 1) / blocks_per_part;
}

}  // namespace xqajit
