// Which family serves a shape, and why each other one does not. Pure: no device, no environment, no batch, no lengths.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/settings.h"
#include "select/kernel_spec.h"

namespace xqajit {

enum class RuleKind : std::uint32_t {
    kCapability,  // the family's kernels cannot compute anything else
    kBuilt,       // whether this build has the family's kernels
    kChoice,      // they could, but another family does it better: a forced family skips the rule
};

// A rule admits a shape when `holds`. The CLI prints `text`, the tests enumerate the tables. "refused unless <text>" is a sentence.
struct Rule {
    char const* id;    // "hmma.beam"
    char const* text;  // what is admitted: "beam_width is 1..8"
    bool (*holds)(XQAParams const& params, ArchFacts const& arch);
    std::string (*found)(XQAParams const& params, ArchFacts const& arch);  // what the rule looked at: "beam_width 9"
    RuleKind kind = RuleKind::kCapability;
};

struct Admission {
    Family family = Family::kMmha;
    bool ok = false;
    std::string rule;  // id of the first rule that refused; "" if ok
    std::string text;  // "refused unless beam_width is 1..8 (here beam_width 9)"; "" if ok
};

// Whether this build has kernels of the family. False makes its rule "<family>.not_built" refuse every shape.
bool family_is_built(Family family);

std::span<Rule const> common_rules();               // every family's first rules
std::span<Rule const> family_rules(Family family);  // then these, "<family>.not_built" first
// waived: kinds of rules not asked.
Admission admit(Family family, XQAParams const& params, ArchFacts const& arch, std::span<RuleKind const> waived = {});

// What the settings force.
struct Overrides {
    std::vector<Family> force_kernel;  // order of preference; empty: the normal choice
    std::int32_t numeric = XQAJIT_NUMERIC_DEFAULT;
    std::int32_t division = XQAJIT_DIVISION_DEFAULT;
    std::uint32_t nb_sub_seq = 0;
    std::optional<bool> pdl;
    bool perf_gate = false;  // perf_gate_passes() needs a batch and lengths, which select() never sees
    std::int32_t on_miss = XQAJIT_ON_MISS_DEFAULT;
};
// Settings left at their default force nothing. INVALID_ARGUMENT names the variable, its value and what is accepted.
Result<Overrides> overrides_from(Settings const& settings);

// The shape with what the settings force in the place of its own fields: what rules, kernels and plans go by.
XQAParams overridden(XQAParams const& params, Overrides const& overrides);

struct Selection {
    KernelSpec spec;
    // The kernel of launches that do not pass the perf gate; unset where it is off, or the family is not one that it judges.
    std::optional<KernelSpec> below_gate;
    // mmha's, for launches before `spec` is loaded: unset where on_miss is not fallback, `spec` is mmha's itself, mmha does not admit the
    // shape, or XQAJIT_FORCE_KERNEL leaves it out. The same as below_gate where both are set.
    std::optional<KernelSpec> fallback;
    std::string reason;                 // "choice.gmma: ..." or "forced: ...": which order was followed and who refused before
    std::vector<Admission> admissions;  // one a family, in kFamilies' order

    // All kernels that launches of the shape may run.
    std::vector<KernelSpec> specs() const {
        std::optional<KernelSpec> const& second = below_gate ? below_gate : fallback;
        return second ? std::vector<KernelSpec>{spec, *second} : std::vector<KernelSpec>{spec};
    }
};
// `params` is normalized and valid; what `overrides` forces wins over its fields. UNSUPPORTED names the rule that refused each family;
// a forced choice that no forced family serves is UNSUPPORTED too, never a silent fallback.
Result<Selection> select(XQAParams const& params, ArchFacts const& arch, Overrides const& overrides);

// The normal choice among families that admit a shape: mla, else gmma, else hmma, else mmha. The rules make this the whole policy: mla
// admits MLA shapes alone, gmma sm_90a alone, and plain MHA is mmha's. nullopt: nobody admits it.
std::optional<Family> choose(std::span<Admission const> admissions);

// The reference system's estimate of whether a tensor-core kernel pays (XQAJIT_PERF_GATE=reference), asked at each launch: where it does
// not, Selection::below_gate runs. past_len: tokens of the longest request; multi_block: whether its KV may be divided.
bool perf_gate_passes(XQAParams const& params, std::uint32_t sm_count, std::uint32_t batch, std::uint64_t past_len,
                      bool multi_block);

}  // namespace xqajit
