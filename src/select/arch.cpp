#include "select/arch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace xqajit {

namespace {

struct ArchRow {
    std::uint32_t sm;
    char const* target;         // what a name without a suffix is compiled for
    std::string_view suffixes;  // of exact names: sm_<sm><suffix>, compute_<sm><suffix>
    std::uint32_t sm_count;
    std::uint32_t smem_optin;
    bool tegra;  // images are exchanged with no other arch
};

// clang-format off
constexpr ArchRow kArchs[] = {
    { 80, "sm_80",   "",   108, 166912, false}, // A100
    { 86, "sm_86",   "",    84, 101376, false}, // A40, RTX A6000
    { 87, "sm_87",   "",    16, 166912, true},  // Jetson AGX Orin 64 GB
    { 89, "sm_89",   "",   142, 101376, false}, // L40S
    { 90, "sm_90a",  "a",  132, 232448, false}, // H100 SXM, H200
    {100, "sm_100a", "af", 148, 232448, false}, // B200
    {103, "sm_103a", "af", 160, 232448, false}, // B300, as its full chip is published
    {110, "sm_110a", "af",  20, 232448, true},  // Jetson Thor
    {120, "sm_120f", "af", 188, 101376, false}, // RTX PRO 6000 Blackwell
    {121, "sm_120f", "af",  48, 101376, false}, // GB10
};
// clang-format on

ArchFacts facts_of(ArchRow const& row, std::string target) {
    ArchFacts facts;
    facts.sm = row.sm;
    facts.sm_count = row.sm_count;
    facts.smem_optin = row.smem_optin;
    facts.native_fp8_convert = row.sm >= 89;
    facts.has_tma = row.sm >= 90;
    facts.has_pdl = row.sm >= 90;
    facts.has_clusters = row.sm >= 90;
    facts.has_wgmma = row.sm == 90 && target.ends_with('a');  // the instruction exists in the "a" target alone
    facts.target = std::move(target);
    return facts;
}

std::string accepted_names() {
    std::string names;
    for (ArchRow const& row : kArchs) {
        names += fmt::format("{}sm_{}", names.empty() ? "" : ", ", row.sm);
        for (char const suffix : row.suffixes) names += fmt::format(", sm_{}{}", row.sm, suffix);
    }
    return names + "; the number alone (90a), the capability (9.0a), or compute_ for sm_ to get PTX (compute_80)";
}

struct Number {
    std::uint32_t sm = 0;
    std::string_view suffix;
};

// "90a", or with `dotted` "9.0a" too -> {90, "a"}. A minor has one digit, so that "9.00" is no name.
std::optional<Number> parse_number(std::string_view text, bool dotted) {
    Number number;
    char const* const end = text.data() + text.size();
    auto const [after, error] = std::from_chars(text.data(), end, number.sm);
    if (error != std::errc() || number.sm > 999 || text.front() == '0') return std::nullopt;
    std::string_view rest(after, static_cast<std::size_t>(end - after));
    if (dotted && rest.starts_with('.')) {
        if (rest.size() < 2 || rest[1] < '0' || rest[1] > '9') return std::nullopt;
        number.sm = number.sm * 10 + static_cast<std::uint32_t>(rest[1] - '0');
        rest.remove_prefix(2);
    }
    number.suffix = rest;
    return number;
}

std::optional<Number> parse_name(std::string_view name) {
    for (std::string_view const prefix : {"sm_", "compute_"})
        if (name.starts_with(prefix)) return parse_number(name.substr(prefix.size()), /*dotted=*/false);
    return parse_number(name, /*dotted=*/true);
}

bool knows_suffix(ArchRow const& row, std::string_view suffix) {
    return suffix.size() == 1 && row.suffixes.find(suffix.front()) != std::string_view::npos;
}

bool is_tegra(std::uint32_t sm) {
    return std::any_of(std::begin(kArchs), std::end(kArchs), [sm](ArchRow const& row) { return row.sm == sm && row.tegra; });
}

}  // namespace

Result<ArchFacts> arch_from_name(std::string_view name) {
    bool const ptx = name.starts_with("compute_");
    if (std::optional<Number> const number = parse_name(name)) {
        for (ArchRow const& row : kArchs) {
            if (row.sm != number->sm) continue;
            if (!number->suffix.empty() && !knows_suffix(row, number->suffix)) break;
            if (number->suffix.empty() && !ptx) return facts_of(row, row.target);
            return facts_of(row, fmt::format("{}_{}{}", ptx ? "compute" : "sm", row.sm, number->suffix));
        }
    }
    return invalid_argument(fmt::format("arch is \"{}\": accepted are {}", name, accepted_names()));
}

bool is_arch_name(std::string_view text) {
    std::optional<Number> const number = parse_name(text);
    return number && (number->suffix.empty() || number->suffix == "a" || number->suffix == "f");
}

Result<ArchFacts> arch_from_capability(std::uint32_t major, std::uint32_t minor) {
    std::string known;
    for (ArchRow const& row : kArchs) {
        if (major == row.sm / 10 && minor == row.sm % 10) return facts_of(row, row.target);
        known += fmt::format("{}{}.{}", known.empty() ? "" : ", ", row.sm / 10, row.sm % 10);
    }
    return unsupported(fmt::format("compute capability is {}.{}: supported are {}", major, minor, known));
}

bool runs_on(ArchFacts const& target, std::uint32_t device_sm) {
    // The target's own number counts, not the device it was asked for: sm_121 is served by an sm_120f image.
    std::string_view const text = target.target;
    std::optional<Number> const number = parse_number(text.substr(text.find('_') + 1), false);
    if (!number || device_sm < number->sm) return false;
    if (device_sm == number->sm) return true;
    bool const same_major = device_sm / 10 == number->sm / 10;
    if (number->suffix == "a") return false;
    if (number->suffix == "f") return same_major;
    return target.is_ptx() || (same_major && !is_tegra(number->sm) && !is_tegra(device_sm));
}

}  // namespace xqajit
