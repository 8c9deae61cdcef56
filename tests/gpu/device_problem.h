// A launch on the GPU, through the public interface, with everything around it watched.
#pragma once

#include <memory>
#include <span>

#include "gpu/gpu.h"
#include "reference/reference.h"

namespace xqajit::testing {

// Puts host page p of a pool at device page page_of[p], so that pools beyond what a host holds can be tested. Empty page_of: as on the
// host. For contiguous KV (a "page" is a sequence) only the stride may differ.
struct Placement {
    std::int64_t stride_page = 0;  // elements; 0: as on the host
    std::vector<std::int32_t> page_of;
};

struct LaunchOptions {
    std::uint64_t max_len = 0;   // 0: what the pages or the capacity hold
    bool device_scales = false;  // scales from device memory, with other host values that must lose
    Placement placement;         // of K and V alike
    bool own_pages =
        false;  // every used page-table entry gets a page of its own, whatever requests share on the host; no placement
    std::uint8_t workspace_fill = 0xFF;
    unsigned reference_threads = 0;  // 0: one a core
};

struct Outputs {
    Bytes out;
    std::vector<float> lse;                       // empty without params.lse
    bool operator==(Outputs const& other) const;  // the same bits
};

class DeviceProblem {
public:
    // Copies every array to the device, each between red zones and of exactly the size the launch may read.
    static Result<DeviceProblem> upload(Gpu const& gpu, ReferenceCase const& c, LaunchOptions const& options = {});
    DeviceProblem(DeviceProblem&&) = default;
    ~DeviceProblem();  // the service forgets the workspace before its memory goes

    xqajit_params params{};
    xqajit_run_args args{};  // for tests to change
    std::uint64_t max_len = 0;

    // Compiles, and makes a workspace of exactly the size asked for.
    Status prepare(Gpu const& gpu);
    // Fills the outputs with NaN, launches and waits.
    Status run(Gpu const& gpu);
    Status poison_outputs();
    // With skip_softmax: what the launches since the last call have counted.
    struct SkippedTiles {
        std::uint64_t skipped = 0;
        std::uint64_t all = 0;
    };
    Result<SkippedTiles> take_skipped_tiles();
    // Launches alone: what a capture records.
    Status launch(Gpu const& gpu) const;
    Result<Outputs> download() const;
    // The plain launch that an input_kv launch of `c` was: append.h's, of the K and V that the device has now. INTERNAL, with the first
    // difference, where those are not what it may have left.
    Result<ReferenceCase> as_stored(ReferenceCase const& c) const;
    // Red zones of every buffer, and that exactly the bytes of the output were written, with numbers.
    Status check_memory(Outputs const& outputs) const;

    // Replaces the contents of a small array; as many values as before.
    Status set_seq_lens(std::vector<std::int32_t> const& values);
    Status set_page_table(std::vector<std::int32_t> const& values);

    GuardedBuffer const& workspace() const { return *workspace_; }

private:
    explicit DeviceProblem(Gpu const& gpu) : gpu_(&gpu) {}
    struct Named {
        char const* name;
        GuardedBuffer buffer;
    };
    template <class T> Result<T*> add(char const* name, std::vector<T> const& values);
    Result<std::uint8_t*> add_pool(char const* name, ReferenceCase const& c, KvView const& view, Placement const& placement,
                                   std::uint64_t repeats);
    GuardedBuffer const* find(char const* name) const;

    Gpu const* gpu_;
    std::uint32_t out_bytes_ = 2;
    std::int64_t vectors_ = 0;  // output rows x beam
    std::vector<Named> buffers_;
    std::unique_ptr<GuardedBuffer> workspace_;  // null: moved from
};

}  // namespace xqajit::testing
