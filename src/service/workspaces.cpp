#include "service/workspaces.h"

#include <fmt/format.h>

namespace xqajit {

Status Workspaces::check_new(void const* workspace, std::uint64_t bytes) const {
    if (workspace == nullptr) return invalid_argument("workspace is null: a device pointer aligned to 256 bytes is accepted");
    if (reinterpret_cast<std::uintptr_t>(workspace) % kAlignment != 0) {
        return invalid_argument(fmt::format("workspace is {}: a device pointer aligned to 256 bytes is accepted", workspace));
    }
    if (bytes == 0) return invalid_argument("workspace bytes is 0: accepted is what xqajit_workspace_size gives, or more");
    return {};
}

Status Workspaces::remember(std::uint64_t context_id, void const* workspace, std::uint64_t bytes) {
    XQAJIT_RETURN_IF_ERROR(check_new(workspace, bytes));
    Result<Record*> record = records_.get_or_build({workspace}, [] { return Result(std::make_unique<Record>()); });
    if (!record.ok()) return record.status();
    (*record)->context_id.store(context_id, std::memory_order_relaxed);
    (*record)->bytes.store(bytes, std::memory_order_release);
    return {};
}

Status Workspaces::release(void const* workspace) {
    Record* record = records_.find({workspace});
    if (record == nullptr || record->bytes.exchange(0) == 0) {
        return invalid_argument(
            fmt::format("workspace {} is unknown: accepted is one that xqajit_workspace_init has prepared", workspace));
    }
    return {};
}

Status Workspaces::check(std::uint64_t context_id, void const* workspace, std::uint64_t bytes, std::uint64_t needed) const {
    if (workspace == nullptr) {
        return invalid_argument(
            fmt::format("workspace is null: this launch needs one of {} bytes (xqajit_workspace_size)", needed));
    }
    Record const* record = records_.find({workspace});
    std::uint64_t const known = record != nullptr ? record->bytes.load(std::memory_order_acquire) : 0;
    if (known == 0 || record->context_id.load(std::memory_order_relaxed) != context_id) {
        return invalid_argument(fmt::format(
            "workspace {} is not initialised in the stream's context: call xqajit_workspace_init once before the launch",
            workspace));
    }
    if (known != bytes) {
        return invalid_argument(
            fmt::format("workspace_size is {}: accepted is the {} bytes that were given to xqajit_workspace_init", bytes, known));
    }
    if (needed > bytes) {
        return invalid_argument(
            fmt::format("workspace_size is {}: this launch needs {} bytes (xqajit_workspace_size)", bytes, needed));
    }
    return {};
}

}  // namespace xqajit
