#include "service/targets.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/split.h"
#include "service/devices.h"

namespace xqajit {
namespace {

constexpr char kBetweenNames[] = ",;";  // semicolons, as other tools' arch lists have them

std::vector<std::string> forced_names(Settings const& settings) { return split(settings.text(SettingId::kArch), kBetweenNames); }

// Every name that is an architecture, in order; the reasons of the others.
std::vector<Target> parse_names(std::vector<std::string> const& names, char const* origin, std::vector<std::string>& reasons) {
    std::vector<Target> targets;
    for (std::string const& name : names) {
        Result<ArchFacts> arch = arch_from_name(name);
        if (arch.ok())
            targets.push_back({*arch, origin});
        else
            reasons.push_back(arch.status().message());
    }
    return targets;
}

Status none_usable(Settings const& settings, std::string_view on, std::vector<std::string> const& reasons) {
    return invalid_argument(fmt::format("XQAJIT_ARCH is '{}': none of its names serves {} ({})", settings.text(SettingId::kArch),
                                        on, fmt::join(reasons, "; ")));
}

}  // namespace

Result<Target> target_for_context(Settings const& settings, driver::ContextInfo const& context) {
    std::vector<std::string> const names = forced_names(settings);
    if (names.empty()) return Target{context.arch, "current context"};
    std::vector<std::string> reasons;
    for (Target& target : parse_names(names, "XQAJIT_ARCH", reasons)) {
        if (!runs_on(target.arch, context.arch.sm)) {
            reasons.push_back(fmt::format("an image for {} does not run on sm_{}", target.arch.target, context.arch.sm));
            continue;
        }
        target.arch.sm_count = context.arch.sm_count;
        target.arch.smem_optin = context.arch.smem_optin;
        return target;
    }
    return none_usable(settings, fmt::format("GPU {} ({}, {})", context.device, context.device_name, context.arch.target), reasons);
}

Result<Target> target_for_document(Settings const& settings, char const* name) {
    if (name != nullptr && *name != '\0') {
        Result<ArchFacts> const arch = arch_from_name(name);
        if (!arch.ok()) return arch.status();
        return Target{*arch, "argument"};
    }
    std::vector<std::string> const names = forced_names(settings);
    if (!names.empty()) {
        // A context that is current decides between the names; no driver is looked for on behalf of a name alone.
        std::vector<std::string> reasons;
        std::vector<Target> const targets = parse_names(names, "XQAJIT_ARCH", reasons);
        if (targets.empty()) return none_usable(settings, "any GPU", reasons);
        if (targets.size() == 1) return targets.front();
        Result<driver::ContextInfo const*> const context = driver::current_context();
        return context.ok() ? target_for_context(settings, **context) : targets.front();
    }
    if (Result<driver::ContextInfo const*> const context = driver::current_context(); context.ok()) {
        return Target{(*context)->arch, "current context"};
    }
    Result<DriverReport> const report = read_devices();
    if (report.ok() && !report->devices.empty()) {
        Device const& device = report->devices.front();
        if (!device.arch.ok()) return device.arch.status();
        return Target{*device.arch, fmt::format("GPU {}", device.ordinal)};
    }
    return unavailable(fmt::format("no architecture is given and no GPU is present to take it from ({}): name one, such as sm_90a",
                                   report.ok() ? "the driver lists none" : report.status().message()));
}

Result<std::vector<Target>> targets_for_prewarm(Settings const& settings, char const* names) {
    std::vector<Target> targets;
    if (names != nullptr && *names != '\0') {
        std::vector<std::string> reasons;
        targets = parse_names(split(names, kBetweenNames), "argument", reasons);
        if (!reasons.empty()) return invalid_argument(reasons.front());
        if (targets.empty()) return invalid_argument(fmt::format("archs is '{}': accepted is a list such as sm_90a,sm_80", names));
    } else if (std::vector<std::string> const forced = forced_names(settings); !forced.empty()) {
        std::vector<std::string> reasons;
        targets = parse_names(forced, "XQAJIT_ARCH", reasons);
        if (targets.empty()) return none_usable(settings, "any GPU", reasons);
    } else {
        Result<DriverReport> const report = read_devices();
        if (!report.ok() || report->devices.empty()) {
            return unavailable(
                fmt::format("no architecture is given and no GPU is present to take it from ({}): name some, such as sm_90a,sm_80",
                            report.ok() ? "the driver lists none" : report.status().message()));
        }
        for (Device const& device : report->devices) {
            if (!device.arch.ok()) return device.arch.status();
            targets.push_back({*device.arch, fmt::format("GPU {}", device.ordinal)});
        }
    }
    std::vector<Target> distinct;
    for (Target& target : targets) {
        bool const known =
            std::any_of(distinct.begin(), distinct.end(), [&](Target const& t) { return t.arch.target == target.arch.target; });
        if (!known) distinct.push_back(std::move(target));
    }
    return distinct;
}

Status check_arch_setting(Settings const& settings) {
    for (std::string const& name : forced_names(settings))
        if (!is_arch_name(name))
            return invalid_argument(fmt::format(
                "XQAJIT_ARCH is '{}': '{}' is no architecture's name: accepted are such as sm_90a, 90a, 9.0a or compute_80, "
                "with commas between",
                settings.text(SettingId::kArch), name));
    return {};
}

std::vector<std::string> arch_setting_warnings(Settings const& settings) {
    std::vector<std::string> reasons;
    parse_names(forced_names(settings), "XQAJIT_ARCH", reasons);
    for (std::string& reason : reasons) reason = "XQAJIT_ARCH: skipped, " + reason;
    return reasons;
}

}  // namespace xqajit
