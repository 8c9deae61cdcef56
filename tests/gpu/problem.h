// Builds a launch from a short description: everything the contract leaves open, drawn or set.
#pragma once

#include "gpu/draw.h"
#include "reference/reference.h"

namespace xqajit::testing {

enum class Layout { kNhd, kHnd };
enum class Pooling {
    kSeparate,     // a pool each for K and V
    kInterleaved,  // one pool, K and V pages alternate: the page stride is twice the page
    kLayerMajor,   // each page holds several layers: the page stride is three pages, the base inside the first
};
enum class Draw {
    kGaussian,
    kEqualKeys,       // q = 0: the plain mean of V
    kEqualLarge,      // one key for all tokens, scores near the type's limits
    kDominantFirst,   // one key takes nearly all weight: the first visible one,
    kDominantLast,    // the last, in a partial page as a rule,
    kDominantMiddle,  // one at a likely split edge
    kRamp,            // every token's score exceeds the one before
    kLarge,           // scores of hundreds, both signs
    kPeaked,          // a key in 512 takes most of the weight, by a power law of them; alike for a KV head's query rows
};
enum class TableTail { kMinusOne, kIntMax, kZero, kRandom };  // page-table entries that must not be read

enum class Unseen { kNan, kInfinity, kZero };  // what fills the slots no row sees; int8: 127, 127, 0

struct ProblemSpec {
    xqajit_params params = XQAJIT_PARAMS_INIT;
    std::vector<std::int32_t> lens;
    std::vector<std::int32_t> q_lens;  // ragged drafts; empty: params.q_len rows each
    Layout layout = Layout::kNhd;
    Pooling pooling = Pooling::kSeparate;
    std::uint32_t padding = 0;      // of token, head and page strides, in units of 16 bytes; different for K and V
    std::uint32_t row_padding = 0;  // of q's and out's row and head strides, in elements
    bool own_v_table = false;
    TableTail tail = TableTail::kMinusOne;
    std::uint32_t spare_table_entries = 0;  // past what the longest request needs
    std::uint64_t max_pool_pages = 0;       // 0: every token has a slot of its own; else requests share random pages beyond that
    std::int64_t capacity = 0;              // contiguous KV: 0 takes the longest length
    float k_scale = 1;                      // 8-bit KV only
    float v_scale = 1;
    float out_scale_rcp = 1;
    Draw draw = Draw::kGaussian;
    Unseen unseen = Unseen::kNan;
    std::uint64_t seed = 1;
};

// Slots that no row sees, spare pages and padding are NaN (127 for int8); past a row's used entries the page table is garbage. With input_kv
// so is the slot of each request's newest token, whose K and V are in qkv: requests must not share pages (max_pool_pages).
ReferenceCase build_case(ProblemSpec const& spec);
// One line that names everything.
std::string to_string(ProblemSpec const& spec);

// A legal launch over the whole contract; the same for the same seed.
struct RandomLaunch {
    ProblemSpec spec;
    char const* family = "";    // to force, where it serves the shape; "": the library's choice
    std::uint64_t max_len = 0;  // 0: unset
    bool device_scales = false;
    void drop_append() { spec.params.input_kv = spec.params.rope_style = 0, spec.params.rotary_dim = 0; }
};
// shape_seed draws what a kernel is compiled for, launch_seed the rest.
RandomLaunch random_launch(std::uint64_t shape_seed, std::uint64_t launch_seed);

// Writes `value` (as the kernel sees it, scales included) into an element of K or V.
void set_kv(ReferenceCase& c, bool of_v, std::uint32_t request, std::int64_t token, std::uint32_t kv_head, std::uint32_t d,
            double value);
// Every element of q becomes `value`.
void set_q(ReferenceCase& c, double value);
// Every element of the V rows that request sees becomes f(token).
template <class F> void set_v_by_token(ReferenceCase& c, std::uint32_t request, F const& f) {
    for (std::int64_t t = 0; t < c.seq_lens[request]; ++t)
        for (std::uint32_t h = 0; h < c.params.num_kv_heads; ++h)
            for (std::uint32_t d = 0; d < c.params.head_dim_v; ++d) set_kv(c, true, request, t, h, d, f(t));
}

}  // namespace xqajit::testing
