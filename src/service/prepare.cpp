// From a shape to a kernel in a context.
#include <fmt/format.h>

#include <vector>

#include "base/log.h"
#include "jit/source_bundle.h"
#include "service/impl.h"

namespace xqajit {
namespace {

using LoadedResult = Result<std::unique_ptr<LoadedImage>>;

// Of the images, all of one kernel, the first that the driver takes.
LoadedResult load(driver::ContextInfo const& context, std::vector<std::shared_ptr<KernelImage const>> const& images,
                  std::uint32_t dynamic_smem, Metrics& metrics) {
    PhaseTimer const timer(metrics, Phase::kLoad);
    std::vector<driver::Image> candidates;
    for (std::shared_ptr<KernelImage const> const& image : images) candidates.push_back({image->image, image->is_ptx});
    Result<driver::LoadedKernel> kernel = driver::LoadedKernel::load(context, candidates, kEntryName, dynamic_smem);
    if (!kernel.ok()) return kernel.status();
    return std::make_unique<LoadedImage>(LoadedImage{std::move(kernel).value()});
}

// The PTX of an exact target: what a driver may finish that refuses the cubin.
std::string ptx_target(std::string const& target) { return "compute_" + target.substr(target.find('_') + 1); }

}  // namespace

Result<XQAParams> checked(XQAParams const& params) {
    Result<XQAParams> normalized = normalize(params);
    if (!normalized.ok()) return normalized;
    XQAJIT_RETURN_IF_ERROR(validate(*normalized));
    return normalized;
}

CompileRequest request_of(KernelSpec const& spec) { return {spec.family, spec.target, macros_for(spec)}; }

LaunchBounds bounds_of(XQAParams const& forced, ArchFacts const& arch, std::uint32_t batch, std::uint64_t max_len,
                       std::uint32_t q_len) {
    LaunchBounds bounds;
    bounds.batch = batch;
    bounds.max_len = max_len;
    bounds.q_len = q_len;
    bounds.num_kv_heads = forced.num_kv_heads;
    bounds.division = resolve_division(forced.division, forced.nb_sub_seq);
    bounds.nb_sub_seq = forced.nb_sub_seq;
    bounds.sm_count = arch.sm_count;
    bounds.smem_optin = arch.smem_optin;
    bounds.has_clusters = arch.has_clusters;
    return bounds;
}

bool passes_gate(XQAParams const& forced, LaunchBounds const& bounds) {
    if (bounds.division == XQAJIT_DIVISION_INVARIANT) return true;  // a request's kernel must not depend on its neighbours
    bool const multi_block = bounds.nb_sub_seq != 1;
    return perf_gate_passes(forced, bounds.sm_count, bounds.batch, bounds.max_len, multi_block);
}

Result<std::uint64_t> workspace_size_of(Selection const& selection, LaunchBounds const& bounds) {
    std::uint64_t most = 0;
    for (KernelSpec const& spec : selection.specs()) {
        Result<std::uint64_t> const bytes = workspace_size(spec, bounds);
        if (!bytes.ok()) return bytes;
        most = std::max(most, *bytes);
    }
    return most;
}

Result<Service::Impl::Asked> Service::Impl::asked(XQAParams const& params) {
    Result<XQAParams> const shape = checked(params);
    if (!shape.ok()) return shape.status();
    Result<driver::ContextInfo const*> const context = driver::current_context();
    if (!context.ok()) return context.status();
    return Asked{*shape, **context, PreparedKey::of(*shape, (*context)->id)};
}

bool Service::Impl::has(Asked const& asked) {
    bool const is_loaded = prepared.find(asked.key) != nullptr;
    if (is_loaded)
        metrics.count_hit(Layer::kMemory);
    else
        recorder.add(asked.shape);
    return is_loaded;
}

Status Service::prepare(XQAParams const& params) {
    Result<Impl::Asked> const asked = Impl::asked(params);
    if (!asked.ok()) return asked.status();
    if (impl_->has(*asked)) return {};
    return impl_->prepare_in(asked->context, asked->shape, asked->key).status();
}

Result<Service::Impl::Admitted> Service::Impl::admit_in(driver::ContextInfo const& context, XQAParams const& params) const {
    Result<Target> const target = target_for_context(settings, context);
    if (!target.ok()) return target.status();
    Result<Selection> selection = select(params, target->arch, overrides);
    if (!selection.ok()) return selection.status();
    return Admitted{std::move(selection).value(), target->arch};
}

Result<PreparedKernel*> Service::Impl::prepare_in(driver::ContextInfo const& context, XQAParams const& params,
                                                  PreparedKey const& key) {
    return prepared.get_or_build(key, [&]() -> Result<std::unique_ptr<PreparedKernel>> {
        Result<Admitted> const admitted = admit_in(context, params);
        if (!admitted.ok()) return admitted.status();
        Result<SpecifiedKernel> const chosen = load_in(context, admitted->selection.spec);
        if (!chosen.ok()) return chosen.status();
        auto kernel = std::make_unique<PreparedKernel>(PreparedKernel{*chosen, std::nullopt, admitted->arch});
        if (admitted->selection.below_gate) {
            Result<SpecifiedKernel> const below = load_in(context, *admitted->selection.below_gate);
            if (!below.ok()) return below.status();
            kernel->below_gate = *below;
        }
        return kernel;
    });
}

Result<SpecifiedKernel> Service::Impl::load_in(driver::ContextInfo const& context, KernelSpec const& spec) {
    CompileRequest const request = request_of(spec);
    std::uint32_t const dynamic_smem = most_dynamic_smem(spec, context.arch.smem_optin);
    Result<LoadedImage*> const in_context = loaded.get_or_build({images.key_of(request).key, context.id}, [&]() -> LoadedResult {
        Result<std::shared_ptr<KernelImage const>> const image = images.get(request);
        if (!image.ok()) return image.status();
        LoadedResult kernel = load(context, {*image}, dynamic_smem, metrics);
        if (kernel.ok()) return kernel;
        if ((*image)->from_disk) {
            // Its checksum was right, so it was bad when it was written, or made for another driver.
            log::warning("compiling again a kernel from disk: " + kernel.status().message());
            Result<std::shared_ptr<KernelImage const>> const compiled = images.replace(request, *image);
            if (!compiled.ok()) return kernel;
            LoadedResult again = load(context, {*compiled}, dynamic_smem, metrics);
            if (again.ok()) return again;
        }
        if ((*image)->is_ptx) return kernel;
        Result<std::shared_ptr<KernelImage const>> const ptx =
            images.get({request.family, ptx_target(request.target), request.macros});
        if (!ptx.ok()) return kernel;
        return load(context, {*image, *ptx}, dynamic_smem, metrics);
    });
    if (!in_context.ok()) return in_context.status();
    return SpecifiedKernel{spec, *in_context};
}

Result<std::uint64_t> Service::workspace_size(XQAParams const& params, std::uint32_t max_batch, std::uint64_t max_len) {
    Result<XQAParams> const shape = checked(params);
    if (!shape.ok()) return shape.status();
    XQAJIT_RETURN_IF_ERROR(check_batch("max_batch", max_batch));
    XQAJIT_RETURN_IF_ERROR(check_tokens("max_len", max_len));
    Result<driver::ContextInfo const*> const context = driver::current_context();
    if (!context.ok()) return context.status();
    Result<Impl::Admitted> const admitted = impl_->admit_in(**context, *shape);
    if (!admitted.ok()) return admitted.status();
    LaunchBounds const bounds = bounds_of(overridden(*shape, impl_->overrides), admitted->arch, max_batch, max_len, shape->q_len);
    return workspace_size_of(admitted->selection, bounds);
}

Status Service::supports(XQAParams const& params, char const* arch) {
    Result<XQAParams> const shape = checked(params);
    if (!shape.ok()) return shape.status();
    Result<Target> const target = target_for_document(impl_->settings, arch);
    if (!target.ok()) return target.status();
    return select(*shape, target->arch, impl_->overrides).status();
}

}  // namespace xqajit
