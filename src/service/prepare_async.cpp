// Prepares in the background.
//
// There is no quicker first compile that the full one replaces (NVRTC's --Ofast-compile=mid): it saved 22-34 % of a compile for a kernel
// of other bits (59 registers in place of 96), and every shape would pay for two; mmha's, out of the cache, is there at once.
#include <fmt/format.h>

#include "base/log.h"
#include "service/impl.h"

namespace xqajit {
namespace {

// The body of a background job: an exception that left it would end the process.
template <class Step> Status caught(Step const& step) noexcept {
    try {
        return step();
    } catch (std::exception const& error) {
        return {XQAJIT_INTERNAL, error.what()};
    }
}

void warn_of(char const* what, XQAParams const& params, Status const& status) {
    if (status.ok() || status.code() == XQAJIT_INTERRUPTED) return;
    log::warning(fmt::format("{} of {} was not prepared in the background: {}", what, to_string(params), status.message()));
}

}  // namespace

Status Service::prepare_async(XQAParams const& params) {
    Result<Impl::Asked> const asked = Impl::asked(params);
    if (!asked.ok()) return asked.status();
    if (impl_->has(*asked)) return {};
    Result<Impl::Admitted> const admitted = impl_->admit_in(asked->context, asked->shape);
    if (!admitted.ok()) return admitted.status();
    return impl_->begin_prepare(asked->context, asked->shape, asked->key, *admitted, /*again=*/true);
}

Status Service::prepare_wait(XQAParams const& params, std::uint32_t timeout_ms) {
    Result<Impl::Asked> const asked = Impl::asked(params);
    if (!asked.ok()) return asked.status();
    if (impl_->prepared.find(asked->key) != nullptr) return {};
    std::optional<Status> const ended = impl_->pending.wait(asked->key, std::chrono::milliseconds(timeout_ms));
    if (ended) return {ended->code(), fmt::format("{}: {}", to_string(asked->shape), ended->message()), ended->detail()};
    if (impl_->prepared.find(asked->key) != nullptr) return {};
    return {XQAJIT_NOT_PREPARED, fmt::format("{}: nothing prepares it in the background", to_string(asked->shape))};
}

Status Service::Impl::begin_prepare(driver::ContextInfo const& context, XQAParams const& params, PreparedKey const& key,
                                    Admitted const& admitted, bool again) {
    // By value, but for the context, which outlives the service.
    std::function<void()> prepare = [this, &context, params, key] {
        Status status = caught([&] { return prepare_in(context, params, key).status(); });
        warn_of("the kernel", params, status);
        pending.end(key, std::move(status));
    };
    std::function<void()> fall_back = [this, &context, params, key, admitted] {
        warn_of("the fallback", params, caught([&] { return prepare_fallback(context, admitted, key); }));
    };
    if (std::optional<Status> const state = pending.begin(key, again)) return *state;
    Status begun = admitted.selection.fallback ? background.add(std::move(fall_back)) : Status();
    if (begun.ok()) begun = background.add(std::move(prepare));
    if (!begun.ok()) pending.end(key, begun);
    return begun;
}

Result<PreparedKernel*> Service::Impl::find_fallback(driver::ContextInfo const& context, XQAParams const& params,
                                                     PreparedKey const& key) {
    // Whoever made the fallback had begun the kernel before.
    if (PreparedKernel* const kernel = fallbacks.find(key)) return kernel;
    Result<Admitted> const admitted = admit_in(context, params);
    if (!admitted.ok()) return admitted.status();
    XQAJIT_RETURN_IF_ERROR(begin_prepare(context, params, key, *admitted, /*again=*/false));
    return Status(XQAJIT_NOT_PREPARED,
                  fmt::format("{} is being prepared in the background, and {}: xqajit_prepare_wait waits for it", to_string(params),
                              admitted->selection.fallback ? "its fallback, mmha, is not loaded either" : "has no fallback"));
}

Status Service::Impl::prepare_fallback(driver::ContextInfo const& context, Admitted const& admitted, PreparedKey const& key) {
    ImageKey const wanted = images.key_of(request_of(admitted.selection.spec));
    if (images.in_memory(wanted) || images.peek(wanted) != nullptr) return {};  // loaded as soon as the fallback would be
    return fallbacks
        .get_or_build(key,
                      [&]() -> Result<std::unique_ptr<PreparedKernel>> {
                          Result<SpecifiedKernel> const kernel = load_in(context, *admitted.selection.fallback);
                          if (!kernel.ok()) return kernel.status();
                          return std::make_unique<PreparedKernel>(PreparedKernel{*kernel, std::nullopt, admitted.arch});
                      })
        .status();
}

}  // namespace xqajit
