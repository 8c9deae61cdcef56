// The admission tables. Order matters: the first rule that refuses is the one reported.
#include <fmt/format.h>

#include <algorithm>

#include "kernel_src/gmma/launch.h"
#include "select/select.h"

namespace xqajit {

namespace {

using Params = XQAParams;
using Arch = ArchFacts;

// Families whose kernels kernel_src/ holds.
constexpr bool is_built(Family family) { return family != Family::kMla; }

std::uint32_t group_of(Params const& p) { return p.num_kv_heads == 0 ? 0 : p.num_q_heads / p.num_kv_heads; }
bool is_16bit(std::int32_t dtype) { return dtype == XQAJIT_DTYPE_FP16 || dtype == XQAJIT_DTYPE_BF16; }
bool drafts(Params const& p) { return p.spec_dec != XQAJIT_SPEC_DEC_NONE; }
bool is_one_of(std::uint32_t value, std::initializer_list<std::uint32_t> accepted) {
    return std::find(accepted.begin(), accepted.end(), value) != accepted.end();
}

// What a refusal quotes.
template <auto Member> std::string number(char const* name, Params const& p) { return fmt::format("{} {}", name, p.*Member); }
std::string arch_found(Params const&, Arch const& a) { return "arch " + a.target; }
std::uint64_t rows_of(Params const& p) { return std::uint64_t{group_of(p)} * p.q_len; }
std::uint32_t row_bytes(Params const& p) { return p.head_dim * dtype_bytes(p.kv_dtype); }
std::string group_found(Params const& p, Arch const&) { return fmt::format("group size {}", group_of(p)); }
std::string rows_found(Params const& p, Arch const&) { return fmt::format("{} x {}", group_of(p), p.q_len); }
std::string group_beam_found(Params const& p, Arch const&) { return fmt::format("{} x {}", group_of(p), p.beam_width); }
std::string head_dim_found(Params const& p, Arch const&) {
    return fmt::format("head_dim {}, head_dim_v {}, mla {}", p.head_dim, p.head_dim_v, p.mla);
}
std::string heads_found(Params const& p, Arch const&) {
    return fmt::format("num_q_heads {}, num_kv_heads {}", p.num_q_heads, p.num_kv_heads);
}
std::string dtypes_found(Params const& p, Arch const&) {
    return fmt::format("q_dtype {}, kv_dtype {}, out_dtype {}", dtype_name(p.q_dtype), dtype_name(p.kv_dtype),
                       dtype_name(p.out_dtype));
}
std::string numeric_found(Params const& p, Arch const&) {
    return fmt::format("numeric {}, kv_dtype {}", numeric_name(p.numeric), dtype_name(p.kv_dtype));
}
std::string on_miss_found(Params const& p, Arch const&) {
    return fmt::format("on_miss {}, division {}", on_miss_name(p.on_miss), division_name(p.division));
}
std::string division_found(Params const& p, Arch const&) {
    return fmt::format("division {}, nb_sub_seq {}", division_name(p.division), p.nb_sub_seq);
}
std::string draft_found(Params const& p, Arch const&) { return fmt::format("spec_dec {}", spec_dec_name(p.spec_dec)); }
std::string position_found(Params const& p, Arch const&) { return fmt::format("position {}", position_name(p.position)); }
std::string beam_found(Params const& p, Arch const&) { return number<&Params::beam_width>("beam_width", p); }
std::string page_found(Params const& p, Arch const&) { return number<&Params::page_size>("page_size", p); }
std::string input_kv_found(Params const& p, Arch const&) { return number<&Params::input_kv>("input_kv", p); }
std::string append_found(Params const& p, Arch const&) {
    return fmt::format("input_kv {}, spec_dec {}, skip_softmax {}", p.input_kv, spec_dec_name(p.spec_dec), p.skip_softmax);
}
std::string skip_softmax_found(Params const& p, Arch const&) { return number<&Params::skip_softmax>("skip_softmax", p); }
std::string skipping_found(Params const& p, Arch const&) {
    return fmt::format("skip_softmax {}, {} x {} rows, head_dim {}, numeric {}", p.skip_softmax, group_of(p), p.q_len, p.head_dim,
                       numeric_name(p.numeric));
}
std::string draft_numeric_found(Params const& p, Arch const&) {
    return fmt::format("numeric {}, spec_dec {}", numeric_name(p.numeric), spec_dec_name(p.spec_dec));
}
std::string built_found(Params const&, Arch const&) {
    std::string text = "built:";
    for (Family const family : kFamilies) {
        if (is_built(family)) text += fmt::format(" {}", family_name(family));
    }
    return text;
}

// Predicates that several families share.
bool is_sm_80_on(Params const&, Arch const& a) { return a.sm >= 80; }
bool has_plain_head_dim(Params const& p, Arch const&) {
    return p.mla == 0 && p.head_dim >= 16 && p.head_dim <= 256 && p.head_dim % 16 == 0 && p.head_dim_v == p.head_dim;
}
bool has_mla_head_dim(Params const& p, Arch const&) { return p.mla != 0 && p.head_dim == 576 && p.head_dim_v == 512; }
bool has_16bit_q(Params const& p, Arch const&) { return is_16bit(p.q_dtype); }
bool has_reference_out(Params const& p, Arch const&) { return p.out_dtype == p.q_dtype || p.out_dtype == XQAJIT_DTYPE_FP8_E4M3; }
bool has_any_kv(Params const& p, Arch const&) { return p.kv_dtype == p.q_dtype || is_8bit(p.kv_dtype); }
bool has_group_to_128(Params const& p, Arch const&) { return group_of(p) >= 1 && group_of(p) <= 128; }
bool has_beam_to_8(Params const& p, Arch const&) { return p.beam_width >= 1 && p.beam_width <= 8; }
bool has_beam_1(Params const& p, Arch const&) { return p.beam_width == 1; }
bool has_reference_page(Params const& p, Arch const&) { return is_one_of(p.page_size, {0, 8, 16, 32, 64, 128}); }
bool is_exact16(Params const& p, Arch const&) { return p.numeric == XQAJIT_NUMERIC_EXACT16; }
bool has_no_input_kv(Params const& p, Arch const&) { return p.input_kv == 0; }
bool has_no_skip_softmax(Params const& p, Arch const&) { return p.skip_softmax == 0; }
// A draft's rows read the same KV, so it is not plain however many heads share it.
bool reuses_kv(Params const& p, Arch const&) { return group_of(p) > 1 || p.beam_width > 1 || drafts(p); }

// clang-format off
constexpr Rule kCommon[] = {
    {"common.non_causal", "attention is causal: non_causal is 0",
     [](Params const& p, Arch const&) { return p.non_causal == 0; },
     [](Params const& p, Arch const&) { return number<&Params::non_causal>("non_causal", p); }},
    {"common.cross_attention", "attention is to the request's own tokens: cross_attention is 0",
     [](Params const& p, Arch const&) { return p.cross_attention == 0; },
     [](Params const& p, Arch const&) { return number<&Params::cross_attention>("cross_attention", p); }},
    {"common.position_shift", "cached keys keep their positions: position_shift is 0",
     [](Params const& p, Arch const&) { return p.position_shift == 0; },
     [](Params const& p, Arch const&) { return number<&Params::position_shift>("position_shift", p); }},
    {"common.sink_tokens", "no token is kept visible before the window: sink_tokens is 0 (sinks, the logits, are another field)",
     [](Params const& p, Arch const&) { return p.sink_tokens == 0; },
     [](Params const& p, Arch const&) { return number<&Params::sink_tokens>("sink_tokens", p); }},
    {"common.chunked_attention", "attention is not cut into chunks: chunked_attention is 0",
     [](Params const& p, Arch const&) { return p.chunked_attention == 0; },
     [](Params const& p, Arch const&) { return number<&Params::chunked_attention>("chunked_attention", p); }},
    {"common.position", "positions add nothing to the scores: position is default (RoPE), learned_absolute or yarn",
     [](Params const& p, Arch const&) { return p.position >= XQAJIT_POSITION_DEFAULT && p.position <= XQAJIT_POSITION_YARN; },
     position_found},
    {"common.nvfp4", "no operand is nvfp4",
     [](Params const& p, Arch const&) {
         return p.q_dtype != XQAJIT_DTYPE_NVFP4 && p.kv_dtype != XQAJIT_DTYPE_NVFP4 && p.out_dtype != XQAJIT_DTYPE_NVFP4;
     }, dtypes_found},
    {"common.heads", "num_q_heads is a multiple of num_kv_heads",
     [](Params const& p, Arch const&) { return p.num_kv_heads != 0 && p.num_q_heads % p.num_kv_heads == 0; }, heads_found},
    {"common.numeric", "numeric fp8 goes with an fp8_e4m3 KV cache",
     [](Params const& p, Arch const&) { return p.numeric != XQAJIT_NUMERIC_FP8 || p.kv_dtype == XQAJIT_DTYPE_FP8_E4M3; },
     numeric_found},
    {"common.nb_sub_seq", "a number of sub-sequences goes with static division: nb_sub_seq is 0, or division default or static",
     [](Params const& p, Arch const&) {
         return p.nb_sub_seq == 0 || p.division == XQAJIT_DIVISION_DEFAULT || p.division == XQAJIT_DIVISION_STATIC;
     }, division_found},
    {"common.on_miss", "a request's bits do not depend on when a kernel is ready: on_miss is not fallback, or division not invariant",
     [](Params const& p, Arch const&) {
         return p.on_miss != XQAJIT_ON_MISS_FALLBACK || p.division != XQAJIT_DIVISION_INVARIANT;
     }, on_miss_found},
};

constexpr char kBuilt[] = "the family's kernels are part of this build";
constexpr char kPlainHeadDim[] = "head_dim is a multiple of 16 in 16..256, head_dim_v equals it, and mla is 0";
constexpr char kPlainMha[] = "KV is reused: group size or beam_width above 1, or a draft; plain MHA is left to mmha";
constexpr char kReferencePage[] = "page_size is 0, 8, 16, 32, 64 or 128";
constexpr char kNumeric16[] = "numeric is exact16: 8-bit KV is converted to 16 bit";
constexpr char kNoInputKv[] = "K and V are appended before the launch: input_kv is 0";
constexpr char kNoSkipSoftmax[] = "every visible tile is read: skip_softmax is 0";

constexpr Rule kHmma[] = {
    {"hmma.not_built", kBuilt, [](Params const&, Arch const&) { return is_built(Family::kHmma); }, built_found, RuleKind::kBuilt},
    {"hmma.arch", "arch is sm_80 or later", is_sm_80_on, arch_found},
    {"hmma.q_dtype", "q_dtype is fp16 or bf16", has_16bit_q, dtypes_found},
    {"hmma.kv_dtype", "kv_dtype is q_dtype, int8 or fp8_e4m3", has_any_kv, dtypes_found},
    {"hmma.out_dtype", "out_dtype is q_dtype or fp8_e4m3", has_reference_out, dtypes_found},
    {"hmma.head_dim", kPlainHeadDim, has_plain_head_dim, head_dim_found},
    {"hmma.beam", "beam_width is 1..8", has_beam_to_8, beam_found},
    {"hmma.group_beam", "group size x beam_width is at most 128",
     [](Params const& p, Arch const&) { return group_of(p) * p.beam_width <= 128; }, group_beam_found},
    {"hmma.page", kReferencePage, has_reference_page, page_found},
    {"hmma.numeric", kNumeric16, is_exact16, numeric_found},
    {"hmma.input_kv", kNoInputKv, has_no_input_kv, input_kv_found},
    {"hmma.skip_softmax", kNoSkipSoftmax, has_no_skip_softmax, skip_softmax_found},
    {"hmma.mha", kPlainMha, reuses_kv, group_found, RuleKind::kChoice},
};

constexpr Rule kGmma[] = {
    {"gmma.not_built", kBuilt, [](Params const&, Arch const&) { return is_built(Family::kGmma); }, built_found, RuleKind::kBuilt},
    {"gmma.arch", "arch is sm_90a: its sizes are measured there, and wgmma is nowhere else",
     [](Params const&, Arch const& a) { return a.has_wgmma && a.has_tma; }, arch_found},
    {"gmma.q_dtype", "q_dtype is fp16 or bf16", has_16bit_q, dtypes_found},
    {"gmma.kv_dtype", "kv_dtype is q_dtype, int8 or fp8_e4m3", has_any_kv, dtypes_found},
    {"gmma.out_dtype", "out_dtype is q_dtype or fp8_e4m3", has_reference_out, dtypes_found},
    {"gmma.head_dim", kPlainHeadDim, has_plain_head_dim, head_dim_found},
    {"gmma.group", "group size is 1..128", has_group_to_128, group_found},
    {"gmma.beam", "beam_width is 1", has_beam_1, beam_found},
    {"gmma.rows", "group size x q_len is at most 16 where head_dim is below 64: more rows are multiplied by tiles of 64 elements",
     [](Params const& p, Arch const&) { return p.head_dim >= 64 || rows_of(p) <= device::kMostNarrowRows; }, rows_found},
    {"gmma.page", kReferencePage, has_reference_page, page_found},
    {"gmma.numeric", "numeric is exact16, or fp8 without a linear draft, whose acceptance rounding would lower",
     [](Params const& p, Arch const& a) { return is_exact16(p, a) || p.spec_dec != XQAJIT_SPEC_DEC_LINEAR; }, draft_numeric_found},
    {"gmma.input_kv", "K and V are appended in plain decode that skips no tile: input_kv is 0, or spec_dec none and skip_softmax 0",
     [](Params const& p, Arch const&) { return p.input_kv == 0 || (!drafts(p) && p.skip_softmax == 0); }, append_found},
    {"gmma.skip_softmax", "tiles are skipped for 16-bit arithmetic of at most 16 rows, or 8 where head_dim is above 128: skip_softmax is 0 elsewhere",
     [](Params const& p, Arch const&) {
         return p.skip_softmax == 0 || (p.numeric != XQAJIT_NUMERIC_FP8 && rows_of(p) <= device::gmma_narrow_rows(p.head_dim));
     }, skipping_found},
    {"gmma.mha", "KV is reused: group size above 1, or a draft; plain MHA is left to mmha, but for what gmma alone computes",
     [](Params const& p, Arch const& a) { return reuses_kv(p, a) || is_gmmas_alone(p); }, group_found, RuleKind::kChoice},
    {"gmma.lines", "a token's row of a KV head is 64 bytes or whole lines of 128; others are left to hmma, but for what gmma alone computes",
     [](Params const& p, Arch const&) { return row_bytes(p) == 64 || row_bytes(p) % 128 == 0 || is_gmmas_alone(p); },
     [](Params const& p, Arch const&) { return fmt::format("{} bytes", row_bytes(p)); }, RuleKind::kChoice},
};

constexpr Rule kMla[] = {
    {"mla.not_built", kBuilt, [](Params const&, Arch const&) { return is_built(Family::kMla); }, built_found, RuleKind::kBuilt},
    {"mla.arch", "arch is sm_90, sm_120 or sm_121",
     [](Params const&, Arch const& a) { return a.has_tma && is_one_of(a.sm, {90, 120, 121}); }, arch_found},
    {"mla.head_dim", "mla is 1 with head_dim 576 and head_dim_v 512", has_mla_head_dim, head_dim_found},
    {"mla.q_dtype", "q_dtype is bf16", [](Params const& p, Arch const&) { return p.q_dtype == XQAJIT_DTYPE_BF16; }, dtypes_found},
    {"mla.kv_dtype", "kv_dtype is bf16 or fp8_e4m3",
     [](Params const& p, Arch const&) { return p.kv_dtype == XQAJIT_DTYPE_BF16 || p.kv_dtype == XQAJIT_DTYPE_FP8_E4M3; }, dtypes_found},
    {"mla.out_dtype", "out_dtype is bf16", [](Params const& p, Arch const&) { return p.out_dtype == XQAJIT_DTYPE_BF16; }, dtypes_found},
    {"mla.group", "group size is 1..128", has_group_to_128, group_found},
    {"mla.beam", "beam_width is 1", has_beam_1, beam_found},
    {"mla.page", "page_size is 8, 16, 32, 64 or 128",
     [](Params const& p, Arch const&) { return is_one_of(p.page_size, {8, 16, 32, 64, 128}); }, page_found},
    {"mla.tree_draft", "a draft is linear", [](Params const& p, Arch const&) { return p.spec_dec != XQAJIT_SPEC_DEC_TREE; }, draft_found},
    {"mla.input_kv", kNoInputKv, has_no_input_kv, input_kv_found},
    {"mla.skip_softmax", kNoSkipSoftmax, has_no_skip_softmax, skip_softmax_found},
};

constexpr Rule kMmha[] = {
    {"mmha.arch", "arch is sm_80 or later", is_sm_80_on, arch_found},
    {"mmha.q_dtype", "q_dtype is fp16 or bf16", has_16bit_q, dtypes_found},
    {"mmha.kv_dtype", "kv_dtype is q_dtype, int8 or fp8_e4m3", has_any_kv, dtypes_found},
    {"mmha.out_dtype", "out_dtype is q_dtype or fp8_e4m3", has_reference_out, dtypes_found},
    {"mmha.head_dim", "head_dim is a multiple of 16 in 16..256 and head_dim_v equals it, or mla is 1 with 576 and 512",
     [](Params const& p, Arch const& a) { return has_plain_head_dim(p, a) || has_mla_head_dim(p, a); }, head_dim_found},
    {"mmha.group", "group size is 1..128", has_group_to_128, group_found},
    {"mmha.beam", "beam_width is 1..8", has_beam_to_8, beam_found},
    {"mmha.page", "page_size is 0 or a power of two in 8..1024",
     [](Params const& p, Arch const&) { return is_one_of(p.page_size, {0, 8, 16, 32, 64, 128, 256, 512, 1024}); }, page_found},
    {"mmha.numeric", "numeric is exact16: the arithmetic is float32", is_exact16, numeric_found},
    {"mmha.input_kv", kNoInputKv, has_no_input_kv, input_kv_found},
    {"mmha.skip_softmax", kNoSkipSoftmax, has_no_skip_softmax, skip_softmax_found},
};
// clang-format on

}  // namespace

bool family_is_built(Family family) { return is_built(family); }

std::span<Rule const> common_rules() { return kCommon; }

std::span<Rule const> family_rules(Family family) {
    switch (family) {
        case Family::kHmma:
            return kHmma;
        case Family::kGmma:
            return kGmma;
        case Family::kMla:
            return kMla;
        case Family::kMmha:
            return kMmha;
    }
    return {};
}

Admission admit(Family family, XQAParams const& params, ArchFacts const& arch, std::span<RuleKind const> waived) {
    for (std::span<Rule const> const rules : {common_rules(), family_rules(family)}) {
        for (Rule const& rule : rules) {
            if (std::find(waived.begin(), waived.end(), rule.kind) != waived.end()) continue;
            if (!rule.holds(params, arch)) {
                return {family, false, rule.id, fmt::format("refused unless {} (here {})", rule.text, rule.found(params, arch))};
            }
        }
    }
    return {family, true, "", ""};
}

}  // namespace xqajit
