// What one prewarm does of a list, and by how many workers at once: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/hash.h"
#include "base/status.h"

namespace xqajit {

// What one worker needs. The peak resident size of a worker process is 112 MiB at most and 97 MiB as a rule (NVRTC 13.0, x86-64,
// ru_maxrss) over the kernels of the bundled models for sm_80, sm_90a and sm_120. The rest is for other versions and larger kernels.
inline constexpr std::uint64_t kWorkerBytes = 256ull << 20;

struct WorkerChoice {
    std::uint32_t workers;
    std::string reason;  // "16 cores, 900 MiB of memory for 256 MiB each"
};

// asked: 0 leaves it to cores and memory (nothing: not known); any other number is obeyed. Never more workers than kernels, nor none.
WorkerChoice choose_workers(std::uint32_t asked, std::size_t kernels, std::uint32_t cores, std::optional<std::uint64_t> memory);

// INVALID_ARGUMENT unless shard is one of 0 .. shards - 1; shards 0 is the whole list, as 1 is.
Status check_shard(std::uint32_t shard, std::uint32_t shards);

// Which kernels a shard has depends on the kernel alone, not on its place in a list: the same for every machine and every list.
bool in_shard(Digest const& kernel, std::uint32_t shard, std::uint32_t shards);

}  // namespace xqajit
