// Launches, and the workspaces they need. A warm run() allocates nothing and takes no lock.
#include <fmt/format.h>

#include "driver/cuda_functions.h"
#include "driver/tensor_map.h"
#include "service/device_checks.h"
#include "service/impl.h"
#include "service/launch_args.h"

namespace xqajit {
namespace {

Status not_prepared(XQAParams const& params, char const* why) {
    return {XQAJIT_NOT_PREPARED,
            fmt::format("no kernel is loaded for {} and {}: call xqajit_prepare first", to_string(params), why)};
}

SpecifiedKernel const& kernel_for(PreparedKernel const& prepared, XQAParams const& forced, LaunchBounds const& bounds) {
    if (!prepared.below_gate || passes_gate(forced, bounds)) return prepared.chosen;
    return *prepared.below_gate;
}

// A launch that reads no KV may come without its memory: the map stays empty, and unused.
Status encode(Result<TensorMapDescription> const& description, void const* base, device::TensorMap& map) {
    if (!description.ok()) return description.status();
    return base == nullptr ? Status() : driver::encode_tensor_map(*description, base, map);
}

}  // namespace

Status Service::run(XQAParams const& params, RunArgs const& given, CUstream_st* stream) {
    Result<XQAParams> const shape = checked(params);
    if (!shape.ok()) return shape.status();
    Result<RunArgs> const args = normalize_args(*shape, given);
    if (!args.ok()) return args.status();
    Result<driver::ContextInfo const*> const found = driver::context_of(stream);
    if (!found.ok()) return found.status();
    driver::ContextInfo const& context = **found;
    PreparedKey const key = PreparedKey::of(*shape, context.id);
    XQAParams const forced = overridden(*shape, impl_->overrides);
    PreparedKernel const* prepared = impl_->prepared.find(key);
    bool falls_back = false;
    if (prepared != nullptr) {
        impl_->metrics.count_hit(Layer::kMemory);
    } else if (args->batch == 0) {
        return impl_->admit_in(context, *shape).status();  // nothing to load for, but what is refused is refused for any batch
    } else {
        impl_->recorder.add(*shape);
        Result<bool> const capturing = driver::is_capturing(stream);
        if (!capturing.ok()) return capturing.status();
        if (*capturing) return not_prepared(*shape, "the stream is capturing");
        if (forced.on_miss == XQAJIT_ON_MISS_REFUSE) return not_prepared(*shape, "on_miss (XQAJIT_ON_MISS) is refuse");
        falls_back = forced.on_miss == XQAJIT_ON_MISS_FALLBACK;
        Result<PreparedKernel*> const found_now =
            falls_back ? impl_->find_fallback(context, *shape, key) : impl_->prepare_in(context, *shape, key);
        if (!found_now.ok()) return found_now.status();
        prepared = *found_now;
    }

    LaunchBounds const bounds = bounds_of(forced, prepared->arch, args->batch, args->max_len, args->q_len);
    SpecifiedKernel const& kernel = kernel_for(*prepared, forced, bounds);
    Result<LaunchPlan> const plan = make_plan(kernel.spec, bounds);
    if (!plan.ok()) return plan.status();
    if (plan->grid_x == 0) return {};
    if (plan->workspace_bytes != 0) {
        XQAJIT_RETURN_IF_ERROR(impl_->workspaces.check(context.id, args->workspace, args->workspace_size, plan->workspace_bytes));
    }

    Result<driver::ScopedContext> const scope = driver::ScopedContext::enter(context.context);
    if (!scope.ok()) return scope.status();
    if (impl_->debug) {
        Result<bool> const capturing = driver::is_capturing(stream);
        if (!capturing.ok()) return capturing.status();
        if (!*capturing) XQAJIT_RETURN_IF_ERROR(check_device_data(*shape, *args, stream));
    }
    device::KernelArgs kernel_args = launch_args(*shape, *args, *plan, bounds.division);
    driver::LaunchConfig const config{plan->grid_x, plan->block_x, plan->dynamic_smem, prepared->arch.has_pdl && forced.pdl != 0,
                                      plan->cluster_size};
    device::TensorMap k_map{}, v_map{};
    bool const with_maps = takes_tensor_maps(kernel.spec.family);
    if (with_maps) {
        XQAJIT_RETURN_IF_ERROR(encode(k_tensor_map(kernel.spec, kernel_args), kernel_args.k.base, k_map));
        XQAJIT_RETURN_IF_ERROR(encode(v_tensor_map(kernel.spec, kernel_args), kernel_args.v.base, v_map));
    }
    void* parameters[] = {&kernel_args, &k_map, &v_map};
    Status status = driver::launch(kernel.loaded->kernel, config, std::span(parameters, with_maps ? 3 : 1), stream);
    if (status.ok()) impl_->metrics.count_launch();
    if (status.ok() && falls_back) impl_->metrics.count_fallback();
    return status;
}

Status Service::workspace_init(void* workspace, std::uint64_t bytes, CUstream_st* stream) {
    XQAJIT_RETURN_IF_ERROR(impl_->workspaces.check_new(workspace, bytes));
    Result<driver::ContextInfo const*> const context = driver::context_of(stream);
    if (!context.ok()) return context.status();
    Result<bool> const capturing = driver::is_capturing(stream);
    if (!capturing.ok()) return capturing.status();
    if (*capturing)
        return invalid_argument("stream is capturing: a workspace is initialised on one that is not, before the capture");
    Result<driver::ScopedContext> const scope = driver::ScopedContext::enter((*context)->context);
    if (!scope.ok()) return scope.status();
    Result<driver::CudaLibrary const*> const library = driver::open_cuda();
    if (!library.ok()) return library.status();
    if (std::uint64_t const words = counter_bytes(bytes) / sizeof(std::uint32_t); words != 0) {
        CUresult const result = (*library)->cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(workspace), 0, words, stream);
        if (result != CUDA_SUCCESS) return driver::driver_error(**library, "cuMemsetD32Async", result);
    }
    return impl_->workspaces.remember((*context)->id, workspace, bytes);
}

Status Service::workspace_release(void* workspace) { return impl_->workspaces.release(workspace); }

}  // namespace xqajit
