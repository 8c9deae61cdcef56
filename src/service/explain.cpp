// The whole chain for one shape, as a document: nothing is compiled, and NVRTC is loaded only where it would be needed.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "service/impl.h"
#include "service/metadata.h"

namespace xqajit {
namespace {

using Json = nlohmann::ordered_json;

Json parse(std::string const& text) { return Json::parse(text, nullptr, /*allow_exceptions=*/false); }

Json arch_json(Target const& target) {
    ArchFacts const& arch = target.arch;
    return {{"target", arch.target},
            {"origin", target.origin},
            {"sm", arch.sm},
            {"sm_count", arch.sm_count},
            {"smem_optin", arch.smem_optin},
            {"native_fp8_convert", arch.native_fp8_convert},
            {"has_tma", arch.has_tma},
            {"has_wgmma", arch.has_wgmma},
            {"has_pdl", arch.has_pdl},
            {"has_clusters", arch.has_clusters}};
}

Json overrides_json(Overrides const& overrides) {
    Json force = Json::array();
    for (Family const family : overrides.force_kernel) force.push_back(family_name(family));
    return {{"force_kernel", std::move(force)},
            {"numeric", numeric_name(overrides.numeric)},
            {"division", division_name(overrides.division)},
            {"nb_sub_seq", overrides.nb_sub_seq},
            {"pdl", overrides.pdl ? Json(*overrides.pdl) : Json(nullptr)},
            {"perf_gate", overrides.perf_gate ? "reference" : "off"},
            {"on_miss", on_miss_name(overrides.on_miss)}};
}

Json admissions_json(std::vector<Admission> const& admissions) {
    Json list = Json::array();
    for (Admission const& admission : admissions) {
        Json entry = {{"family", family_name(admission.family)}, {"admitted", admission.ok}};
        if (!admission.ok) {
            entry["rule"] = admission.rule;
            entry["text"] = admission.text;
        }
        list.push_back(std::move(entry));
    }
    return list;
}

Json error_json(Status const& status) { return {{"status", status_name(status.code())}, {"message", status.message()}}; }

Json key_json(CompileRequest const& request, ImageKey const& key, Toolchain& toolchain) {
    Json json = {{"body", key.key.body.hex()}};
    if (Result<NvrtcIdentity> const nvrtc = toolchain.identity(); nvrtc.ok()) {
        json["compiler"] = {{"id", nvrtc->build.hex()}, {"path", nvrtc->path}, {"origin", nvrtc->origin}};
    } else {
        json["compiler"] = nullptr;
        json["compiler_reason"] = nvrtc.status().message();
    }
    json["options"] = keyed_options(request.target);
    json["text"] = key_text(request);
    return json;
}

// Where a prepare would take the image from.
Json image_json(KernelImages const& images, Toolchain& toolchain, CompileRequest const& request, ImageKey const& key) {
    if (images.in_memory(key)) return {{"from", "memory"}};
    if (std::shared_ptr<KernelImage const> const image = images.peek(key)) {
        Json json = {{"from", "disk"},
                     {"layer", kLayerNames[static_cast<std::size_t>(image->layer)]},
                     {"bytes", image->image.size()},
                     {"is_ptx", image->is_ptx}};
        if (image->key != key.key) json["note"] = "compiled by another NVRTC (XQAJIT_COMPILER_MATCH)";
        json["metadata"] = parse_metadata(image->metadata);
        return json;
    }
    if (Status const why = toolchain.can_compile(request.target); !why.ok())
        return {{"from", "nowhere"}, {"reason", "no entry on disk, and none can be compiled: " + why.message()}};
    return {{"from", "compile"}};
}

Json perf_gate_json(Overrides const& overrides, Selection const& selection, bool passes) {
    Json json = {{"setting", overrides.perf_gate ? "reference" : "off"}, {"passes", passes}};
    if (selection.below_gate) {
        json["effect"] = passes ? "none at this batch and length" : "mmha runs at this batch and length";
    } else if (overrides.perf_gate) {
        json["effect"] = !overrides.force_kernel.empty() ? "none: XQAJIT_FORCE_KERNEL decides"
                                                         : fmt::format("none: it judges the choice of hmma and gmma, not {}",
                                                                       family_name(selection.spec.family));
    }
    return json;
}

}  // namespace

Result<std::string> Service::explain(XQAParams const& params, char const* arch, std::uint32_t batch, std::uint64_t seq_len) {
    Result<XQAParams> const shape = checked(params);
    if (!shape.ok()) return shape.status();
    XQAJIT_RETURN_IF_ERROR(check_batch("batch", batch));
    XQAJIT_RETURN_IF_ERROR(check_tokens("seq_len", seq_len));
    Result<Target> const target = target_for_document(impl_->settings, arch);
    if (!target.ok()) return target.status();
    Overrides const& overrides = impl_->overrides;
    XQAParams const forced = overridden(*shape, overrides);

    Json json = {{"schema", "xqajit.explain/1"},
                 {"summary", to_string(*shape)},
                 {"params", parse(to_json(*shape))},
                 {"arch", arch_json(*target)},
                 {"overrides", overrides_json(overrides)}};
    Result<Selection> const selection = select(*shape, target->arch, overrides);
    if (!selection.ok()) {
        std::vector<Admission> admissions;
        for (Family const family : kFamilies) admissions.push_back(admit(family, forced, target->arch));
        json["admissions"] = admissions_json(admissions);
        json["error"] = error_json(selection.status());
        return to_text(json, 1);
    }
    LaunchBounds const bounds = bounds_of(forced, target->arch, batch, seq_len, shape->q_len);
    bool const passes = passes_gate(forced, bounds);
    KernelSpec const& launched = selection->below_gate && !passes ? *selection->below_gate : selection->spec;
    CompileRequest const request = request_of(launched);
    ImageKey const key = impl_->images.key_of(request);
    json["admissions"] = admissions_json(selection->admissions);
    json["selection"] = {{"family", family_name(selection->spec.family)}, {"reason", selection->reason}};
    json["spec"] = parse(to_json(launched));
    json["macros"] = parse(request.macros.to_json());
    json["key"] = key_json(request, key, impl_->toolchain);
    json["image"] = image_json(impl_->images, impl_->toolchain, request, key);

    Json launch = {{"family", family_name(launched.family)},
                   {"batch", batch},
                   {"seq_len", seq_len},
                   {"division", division_name(bounds.division)},
                   {"nb_sub_seq", bounds.nb_sub_seq},
                   {"pdl", target->arch.has_pdl && forced.pdl != 0},
                   {"on_miss", on_miss_name(forced.on_miss == XQAJIT_ON_MISS_DEFAULT ? XQAJIT_ON_MISS_COMPILE : forced.on_miss)},
                   {"fallback", selection->fallback ? Json(family_name(selection->fallback->family)) : Json(nullptr)}};
    Result<LaunchPlan> const plan = make_plan(launched, bounds);
    if (plan.ok())
        launch["plan"] = parse(plan->to_json());
    else
        launch["error"] = error_json(plan.status());
    if (Result<std::uint64_t> const bytes = workspace_size_of(*selection, bounds); bytes.ok()) launch["workspace_size"] = *bytes;
    json["launch"] = std::move(launch);
    json["perf_gate"] = perf_gate_json(overrides, *selection, passes);
    return to_text(json, 1);
}

}  // namespace xqajit
