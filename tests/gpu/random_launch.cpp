#include <algorithm>

#include "gpu/problem.h"
#include "reference/codec.h"

namespace xqajit::testing {
namespace {

void draw_shape(Random& random, xqajit_params& p) {
    constexpr std::uint32_t kGroups[] = {1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 32, 64, 71, 128};
    constexpr std::uint32_t kHeads[] = {1, 1, 2, 3, 4, 8};
    constexpr std::uint32_t kDims[] = {16, 32, 48, 64, 80, 96, 112, 128, 128, 128, 144, 160, 176, 192, 208, 224, 240, 256};
    constexpr std::uint32_t kPages[] = {0, 8, 16, 16, 32, 32, 64, 128, 256, 1024};
    p.q_dtype = random.chance(0.5) ? XQAJIT_DTYPE_BF16 : XQAJIT_DTYPE_FP16;
    std::int32_t const kv_types[] = {p.q_dtype, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_INT8};
    p.kv_dtype = random.pick(kv_types);
    p.out_dtype = random.chance(0.2) ? XQAJIT_DTYPE_FP8_E4M3 : p.q_dtype;
    p.page_size = random.pick(kPages);
    if (random.chance(0.08)) {
        constexpr std::uint32_t kMlaHeads[] = {1, 8, 16, 32, 128};
        p.mla = 1;
        p.num_q_heads = random.pick(kMlaHeads);
        p.num_kv_heads = 1;
        p.head_dim = 576;
        p.head_dim_v = 512;
        p.qk_scale = 0.1352337788608801F;
    } else {
        std::uint32_t const group = random.pick(kGroups);
        p.num_kv_heads = group >= 32 ? 1 : random.pick(kHeads);
        p.num_q_heads = p.num_kv_heads * group;
        p.head_dim = random.pick(kDims);
        if (random.chance(0.3)) p.qk_scale = 0.15F;
    }
    double const mode = static_cast<double>(random.between(0, 99));
    if (mode < 20) {
        p.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    } else if (mode < 40) {
        p.spec_dec = XQAJIT_SPEC_DEC_TREE;
    } else if (mode < 55 && !p.mla) {
        constexpr std::uint32_t kBeams[] = {2, 3, 4, 8};
        p.beam_width = random.pick(kBeams);
    }
    if (p.spec_dec) p.q_len = static_cast<std::uint32_t>(random.chance(0.2) ? random.between(17, 64) : random.between(1, 16));
    if (p.kv_dtype == XQAJIT_DTYPE_FP8_E4M3 && !p.mla && p.beam_width <= 1 && p.spec_dec != XQAJIT_SPEC_DEC_LINEAR &&
        p.page_size <= 128 && random.chance(0.3))
        p.numeric = XQAJIT_NUMERIC_FP8;
    p.sinks = random.chance(0.25);
    p.lse = random.chance(0.6);
    if (random.chance(0.2)) p.softcap = random.chance(0.5) ? 30.0F : 2.5F;
    if (p.spec_dec != XQAJIT_SPEC_DEC_TREE && random.chance(0.35)) p.sliding_window = 1;  // the value is the launch's
}

// Plain decode alone appends, and the last draws of a shape say whether it does.
void draw_append(Random& random, xqajit_params& p) {
    constexpr std::int32_t kStyles[] = {XQAJIT_ROPE_NONE, XQAJIT_ROPE_NEOX, XQAJIT_ROPE_NEOX, XQAJIT_ROPE_GPTJ};
    if (p.spec_dec != XQAJIT_SPEC_DEC_NONE || p.beam_width > 1 || p.mla || !random.chance(0.4)) return;
    p.input_kv = 1;
    p.rope_style = random.pick(kStyles);
    if (p.rope_style == XQAJIT_ROPE_NONE) return;
    p.rotary_dim = random.chance(0.5) ? p.head_dim : static_cast<std::uint32_t>(16 * random.between(1, p.head_dim / 16));
}

std::int32_t draw_len(Random& random, xqajit_params const& p, std::int64_t longest) {
    std::int64_t const page = std::max(p.page_size, 8U);
    switch (random.between(0, 6)) {
        case 0:
            return 0;
        case 1:
            return static_cast<std::int32_t>(random.between(1, 3));
        case 2:
            return static_cast<std::int32_t>(std::min(longest, page * random.between(1, 4) + random.between(-1, 1)));
        case 3:
            return static_cast<std::int32_t>(longest);
        default:
            return static_cast<std::int32_t>(random.between(1, longest));
    }
}

}  // namespace

RandomLaunch random_launch(std::uint64_t shape_seed, std::uint64_t launch_seed) {
    constexpr std::uint32_t kWindows[] = {1, 5, 16, 64, 129, 1000, 100000};
    constexpr std::uint32_t kSplits[] = {0, 0, 1, 2, 8, 17};
    constexpr std::int32_t kDivisions[] = {XQAJIT_DIVISION_DEFAULT, XQAJIT_DIVISION_BALANCED, XQAJIT_DIVISION_STATIC,
                                           XQAJIT_DIVISION_INVARIANT};
    constexpr char const* kFamilies[] = {"", "gmma", "hmma", "mmha"};
    constexpr float kScales[] = {0.5F, 0.037F, 1, 2};
    RandomLaunch launch;
    ProblemSpec& spec = launch.spec;
    xqajit_params& p = spec.params;
    Random shape_random(shape_seed);
    draw_shape(shape_random, p);
    launch.family = shape_random.pick(kFamilies);
    draw_append(shape_random, p);

    Random random(launch_seed ^ 0x5851F42D4C957F2D);
    spec.seed = launch_seed;
    if (p.sliding_window) p.sliding_window = random.pick(kWindows);
    p.division = random.pick(kDivisions);
    if (p.division == XQAJIT_DIVISION_STATIC) p.nb_sub_seq = random.pick(kSplits);
    auto const batch = static_cast<std::size_t>(random.chance(0.1) ? random.between(20, 60) : random.between(1, 6));
    // Keeps host memory and the reference's time in hand: wide heads and long drafts get shorter caches.
    double const width = static_cast<double>(batch) * std::max(1U, p.beam_width) * p.num_kv_heads * p.head_dim;
    auto const longest = static_cast<std::int64_t>(std::clamp(6e6 / width, 40.0, random.chance(0.2) ? 6000.0 : 700.0));
    for (std::size_t b = 0; b < batch; ++b) spec.lens.push_back(draw_len(random, p, longest));
    if (p.spec_dec && random.chance(0.5))
        for (std::size_t b = 0; b < batch; ++b) {
            // Many far shorter than the longest, so that warps of their blocks have no rows.
            std::int64_t const most = random.chance(0.4) ? std::min(p.q_len, 2U) : p.q_len;
            spec.q_lens.push_back(static_cast<std::int32_t>(random.between(b == 0, most)));
        }
    spec.layout = random.chance(0.5) ? Layout::kNhd : Layout::kHnd;
    spec.pooling = static_cast<Pooling>(random.between(0, 2));
    if (random.chance(0.4)) spec.padding = static_cast<std::uint32_t>(random.between(1, 3));
    if (random.chance(0.4)) spec.row_padding = static_cast<std::uint32_t>(16 * random.between(1, 2));
    spec.own_v_table = p.page_size && random.chance(0.3);
    spec.tail = static_cast<TableTail>(random.between(0, 3));
    spec.spare_table_entries = static_cast<std::uint32_t>(random.between(0, 3));
    if (p.page_size == 0) spec.capacity = longest + random.between(0, 40);
    if (bytes_of(p.kv_dtype) == 1) {
        spec.k_scale = random.pick(kScales);
        spec.v_scale = random.chance(0.3) ? spec.k_scale : random.pick(kScales);
        // int8 codes need a scale that spreads a Gaussian over them.
        if (p.kv_dtype == XQAJIT_DTYPE_INT8) {
            spec.k_scale = 0.03F * spec.k_scale;
            spec.v_scale = 0.03F * spec.v_scale;
        }
    }
    if (p.out_dtype == XQAJIT_DTYPE_FP8_E4M3) spec.out_scale_rcp = random.pick(kScales) * 4;
    spec.draw = random.chance(0.5) ? Draw::kGaussian : static_cast<Draw>(random.between(0, 7));
    // Large scores would turn one rounding of a rotated q into more than the bounds.
    if (p.rope_style && (spec.draw == Draw::kLarge || spec.draw == Draw::kEqualLarge)) spec.draw = Draw::kGaussian;
    launch.device_scales = random.chance(0.4);
    // The tightest bound, or what the pages hold.
    if (random.chance(0.5)) launch.max_len = static_cast<std::uint64_t>(*std::max_element(spec.lens.begin(), spec.lens.end()));
    return launch;
}

}  // namespace xqajit::testing
