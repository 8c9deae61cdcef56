// The blocks that the families with tensor cores cut a launch into. Of the plan alone.
#pragma once

#include <vector>

#include "kernel_src/gmma/launch.h"
#include "plan/plan.h"

namespace xqajit {

struct BlockShape {
    std::uint32_t threads = 0;
    std::uint32_t cluster = 1;          // blocks that share a part
    std::uint64_t at_once = 0;          // clusters, or blocks where there are none, that surely run at once
    std::uint32_t dynamic_smem = 0;     // bytes of shared memory that the launch asks for
    std::uint32_t least_smem = 0;       // bytes that a block needs in all: the device may grant fewer
    std::uint32_t ring_items = 0;       // gmma: of each group's ring
    bool fills = true;                  // requests are cut until `at_once` is reached; else only to even out their lengths
    std::uint32_t even_half_waves = 4;  // of parts to even out lengths, at most
};

// units: blocks that the launch has at least, one for each request, beam, KV head and row block.
BlockShape hmma_blocks(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units);
BlockShape gmma_blocks(KernelSpec const& spec, LaunchBounds const& bounds, std::uint64_t units);

inline device::GmmaKind gmma_kind(KernelSpec const& spec) {
    return {spec.head_dim, dtype_bytes(spec.kv_dtype), spec.m_tile, spec.numeric == XQAJIT_NUMERIC_FP8, spec.skip_softmax};
}

// See most_dynamic_smem().
std::uint32_t hmma_most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin);
std::uint32_t gmma_most_dynamic_smem(KernelSpec const& spec, std::uint32_t smem_optin);

// Whether clusters may take a launch at all. A small GPU, or a slice of one, may have no group of SMs that is large enough for one.
inline bool may_have_clusters(LaunchBounds const& bounds) {
    constexpr std::uint32_t kFewestSms = 64;
    return bounds.has_clusters && bounds.division == XQAJIT_DIVISION_BALANCED && bounds.sm_count >= kFewestSms;
}

// gmma's lengths up to max_len one of which makes the most parts, whatever the batch: past each but the longest, blocks are shaped otherwise.
std::vector<std::uint64_t> gmma_lengths_of_most_parts(std::uint64_t max_len);

}  // namespace xqajit
