#include "service/prewarm_share.h"

#include <fmt/format.h>

#include <algorithm>

namespace xqajit {
namespace {

std::string in_mebibytes(std::uint64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

}  // namespace

WorkerChoice choose_workers(std::uint32_t asked, std::size_t kernels, std::uint32_t cores, std::optional<std::uint64_t> memory) {
    std::uint64_t workers = asked;
    std::string reason = "as asked for";
    if (asked == 0) {
        workers = std::max(1u, cores);
        reason = fmt::format("{} core{}", workers, workers == 1 ? "" : "s");
        if (memory) {
            workers = std::min(workers, *memory / kWorkerBytes);
            reason += fmt::format(", {} of memory for {} each", in_mebibytes(*memory), in_mebibytes(kWorkerBytes));
        }
    }
    if (kernels < workers) reason += fmt::format(", {} kernel{} to compile", kernels, kernels == 1 ? "" : "s");
    workers = std::clamp<std::uint64_t>(workers, 1, std::max<std::size_t>(1, kernels));
    return {static_cast<std::uint32_t>(workers), std::move(reason)};
}

Status check_shard(std::uint32_t shard, std::uint32_t shards) {
    std::uint32_t const count = std::max(1u, shards);
    if (shard < count) return {};
    return invalid_argument(fmt::format("shard is {} of {} shards: accepted are 0..{}", shard, count, count - 1));
}

bool in_shard(Digest const& kernel, std::uint32_t shard, std::uint32_t shards) {
    return kernel.low % std::max(1u, shards) == shard;
}

}  // namespace xqajit
