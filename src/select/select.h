// Which family serves a shape, and why each other one does not. Pure: no device, no environment, no batch, no lengths.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/settings.h"
#include "select/kernel_spec.h"

namespace xqajit {

// A rule admits a shape when `holds`. The CLI prints `text`, the tests enumerate the tables.
struct Rule {
    char const* id;   // "hmma.beam"
    char const* text; // "beam_width x group size is at most 128"
    bool (*holds)(XQAParams const& params, ArchFacts const& arch);
};

struct Admission {
    Family family = Family::kMmha;
    bool ok = false;
    std::string rule;  // id of the first rule that refused; "" if ok
    std::string text;  // that rule's text
};

std::span<Rule const> common_rules();           // every family's first rules
std::span<Rule const> family_rules(Family family);
Admission admit(Family family, XQAParams const& params, ArchFacts const& arch);

// What the settings force.
struct Overrides {
    std::vector<Family> force_kernel;  // order of preference; empty: the normal choice
    std::int32_t numeric = XQAJIT_NUMERIC_DEFAULT;
    std::int32_t division = XQAJIT_DIVISION_DEFAULT;
    std::uint32_t nb_sub_seq = 0;
    std::optional<bool> pdl;
    bool perf_gate = false;
};
Result<Overrides> overrides_from(Settings const& settings);

struct Selection {
    KernelSpec spec;
    std::string reason;                // "rule choice.fallback: ..." or "forced by XQAJIT_FORCE_KERNEL"
    std::vector<Admission> admissions; // one a family, in kFamilies' order
};
// `params` is normalized and valid; overrides.numeric wins over params.numeric. UNSUPPORTED names the rule that refused each family.
Result<Selection> select(XQAParams const& params, ArchFacts const& arch, Overrides const& overrides);

// The reference system's estimate of whether a tensor-core kernel pays (XQAJIT_PERF_GATE=reference). Off by default.
bool perf_gate_passes(XQAParams const& params, std::uint32_t sm_count, std::uint32_t batch, std::uint64_t past_len, bool multi_block);

} // namespace xqajit
