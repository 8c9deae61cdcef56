#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "params/fields.h"
#include "params/versioned.h"

namespace xqajit {
namespace {

using P = XQAParams const&;

bool non_negative(float value) { return std::isfinite(value) && value >= 0; }
bool flag(std::int32_t value) { return value == 0 || value == 1; }
bool in(std::int32_t value, std::int32_t least, std::int32_t most) { return least <= value && value <= most; }

// clang-format off
constexpr ParamsRule kRules[] = {
    {"q_dtype", [](P p) { return p.q_dtype == XQAJIT_DTYPE_FP16 || p.q_dtype == XQAJIT_DTYPE_BF16; }, "are fp16, bf16"},
    {"kv_dtype", [](P p) { return p.kv_dtype == p.q_dtype || in(p.kv_dtype, XQAJIT_DTYPE_FP8_E4M3, XQAJIT_DTYPE_NVFP4); },
     "are fp16 and bf16 (the same as q_dtype), fp8_e4m3, int8"},
    {"out_dtype", [](P p) { return p.out_dtype == p.q_dtype || p.out_dtype == XQAJIT_DTYPE_FP8_E4M3; },
     "are fp16 and bf16 (the same as q_dtype), fp8_e4m3"},
    {"numeric", [](P p) { return in(p.numeric, XQAJIT_NUMERIC_EXACT16, XQAJIT_NUMERIC_FP8); }, "are exact16, fp8"},
    {"mla", [](P p) { return flag(p.mla); }, "are 0, 1"},
    {"num_kv_heads", [](P p) { return p.num_kv_heads >= 1 && p.num_kv_heads <= 4096; }, "are 1..4096"},
    {"num_kv_heads", [](P p) { return p.mla == 0 || p.num_kv_heads == 1; }, "is 1 with mla"},
    {"num_q_heads", [](P p) { return p.num_q_heads >= 1 && p.num_q_heads % p.num_kv_heads == 0 && p.num_q_heads / p.num_kv_heads <= 128; },
     "are multiples of num_kv_heads, 1..128 times it"},
    {"head_dim", [](P p) { return p.mla == 1 ? p.head_dim == 576 : p.head_dim >= 16 && p.head_dim <= 256 && p.head_dim % 16 == 0; },
     "are multiples of 16 in 16..256; 576 with mla"},
    {"head_dim_v", [](P p) { return p.head_dim_v == (p.mla == 1 ? 512 : p.head_dim); }, "is head_dim; 512 with mla"},
    {"page_size", [](P p) { return p.page_size == 0 || (p.page_size >= 8 && p.page_size <= 1024 && (p.page_size & (p.page_size - 1)) == 0); },
     "are 0, 8, 16, 32, 64, 128, 256, 512, 1024"},
    {"beam_width", [](P p) { return p.beam_width >= 1 && p.beam_width <= 8; }, "are 1..8"},
    {"spec_dec", [](P p) { return in(p.spec_dec, XQAJIT_SPEC_DEC_NONE, XQAJIT_SPEC_DEC_TREE); }, "are none, linear, tree"},
    {"beam_width", [](P p) { return p.beam_width == 1 || p.spec_dec == XQAJIT_SPEC_DEC_NONE; }, "is 1 with spec_dec"},
    {"q_len", [](P p) { return p.q_len >= 1 && p.q_len <= 64; }, "are 1..64"},
    {"q_len", [](P p) { return p.q_len == 1 || p.spec_dec != XQAJIT_SPEC_DEC_NONE; }, "is 1 without spec_dec"},
    {"sinks", [](P p) { return flag(p.sinks); }, "are 0, 1"},
    {"lse", [](P p) { return flag(p.lse); }, "are 0, 1"},
    {"input_kv", [](P p) { return flag(p.input_kv); }, "are 0, 1"},
    {"rope_style", [](P p) { return in(p.rope_style, XQAJIT_ROPE_NONE, XQAJIT_ROPE_GPTJ); }, "are none, neox, gptj"},
    {"rope_style", [](P p) { return p.rope_style == XQAJIT_ROPE_NONE || p.input_kv == 1; }, "is none without input_kv"},
    {"rotary_dim", [](P p) { return p.rotary_dim % 16 == 0 && p.rotary_dim <= p.head_dim; }, "are multiples of 16 up to head_dim"},
    {"rotary_dim", [](P p) { return p.rotary_dim == 0 || p.rope_style != XQAJIT_ROPE_NONE; }, "is 0 without rope_style"},
    {"skip_softmax", [](P p) { return flag(p.skip_softmax); }, "are 0, 1"},
    {"sliding_window", [](P p) { return p.sliding_window <= kMaxTokens; }, "are 0..2147483647"},
    {"sliding_window", [](P p) { return p.sliding_window == 0 || p.spec_dec != XQAJIT_SPEC_DEC_TREE; }, "is 0 with spec_dec tree"},
    {"softcap", [](P p) { return p.softcap == 0 || (p.softcap > 0 && std::isnormal(p.softcap)); }, "are 0 and finite values >= 1.2e-38"},
    {"qk_scale", [](P p) { return non_negative(p.qk_scale); }, "are finite values >= 0"},
    {"qk_scale", [](P p) { return p.qk_scale > 0; }, "are values > 0 with mla, which has no default"},
    {"skip_softmax_threshold", [](P p) { return non_negative(p.skip_softmax_threshold); }, "are finite values >= 0"},
    {"skip_softmax_threshold", [](P p) { return p.skip_softmax_threshold == 0 || p.skip_softmax == 1; }, "is 0 without skip_softmax"},
    {"division", [](P p) { return in(p.division, XQAJIT_DIVISION_DEFAULT, XQAJIT_DIVISION_INVARIANT); },
     "are default, static, balanced, invariant"},
    {"nb_sub_seq", [](P p) { return p.nb_sub_seq <= 6000; }, "are 0..6000"},
    {"pdl", [](P p) { return flag(p.pdl); }, "are 0, 1"},
    {"non_causal", [](P p) { return flag(p.non_causal); }, "are 0, 1"},
    {"cross_attention", [](P p) { return flag(p.cross_attention); }, "are 0, 1"},
    {"position_shift", [](P p) { return flag(p.position_shift); }, "are 0, 1"},
    {"sink_tokens", [](P p) { return p.sink_tokens <= kMaxTokens; }, "are 0..2147483647"},
    {"chunked_attention", [](P p) { return p.chunked_attention <= kMaxTokens; }, "are 0..2147483647"},
    {"position", [](P p) { return in(p.position, XQAJIT_POSITION_DEFAULT, XQAJIT_POSITION_RELATIVE); },
     "are default, learned_absolute, yarn, alibi, relative"},
    {"on_miss", [](P p) { return in(p.on_miss, XQAJIT_ON_MISS_DEFAULT, XQAJIT_ON_MISS_REFUSE); }, "are default, compile, fallback, refuse"},
};
// clang-format on

}  // namespace

std::span<ParamsRule const> params_rules() { return kRules; }

ParamsRule const* first_broken_rule(XQAParams const& params) {
    for (ParamsRule const& rule : kRules)
        if (!rule.holds(params)) return &rule;
    return nullptr;
}

char const* accepted_range(std::string_view field) {
    for (ParamsRule const& rule : kRules)
        if (rule.field == field) return rule.accepted;
    return "";
}

std::string describe(ParamsRule const& rule, XQAParams const& params) {
    return fmt::format("{} is {}: accepted {}", rule.field, value_text(*find_field(rule.field), params), rule.accepted);
}

Result<XQAParams> normalize(XQAParams const& params) {
    XQAParams result;
    XQAJIT_RETURN_IF_ERROR(copy_versioned(params, kParamsMinimumSize, result));
    if (result.kv_dtype == XQAJIT_DTYPE_DEFAULT) result.kv_dtype = result.q_dtype;
    if (result.out_dtype == XQAJIT_DTYPE_DEFAULT) result.out_dtype = result.q_dtype;
    if (result.numeric == XQAJIT_NUMERIC_DEFAULT) result.numeric = XQAJIT_NUMERIC_EXACT16;
    if (result.head_dim_v == 0) result.head_dim_v = result.mla != 0 ? 512 : result.head_dim;
    if (result.beam_width == 0) result.beam_width = 1;
    if (result.q_len == 0) result.q_len = 1;
    if (result.rotary_dim == 0 && result.rope_style != XQAJIT_ROPE_NONE) result.rotary_dim = result.head_dim;
    if (result.qk_scale == 0 && result.mla == 0 && result.head_dim != 0)
        result.qk_scale = 1.0f / std::sqrt(static_cast<float>(result.head_dim));
    return result;
}

Status check_fits(XQAParams const& params, std::size_t struct_size) {
    for (Field const& field : params_fields()) {
        XQAParams without = params;
        bool held = true;
        std::visit(
            [&](auto member) {
                auto const offset = reinterpret_cast<char const*>(&(params.*member)) - reinterpret_cast<char const*>(&params);
                held = static_cast<std::size_t>(offset) + sizeof(params.*member) <= struct_size;
                without.*member = 0;
            },
            field.member);
        if (held) continue;
        Result<XQAParams> const defaulted = normalize(without);
        if (!defaulted.ok()) return defaulted.status();
        if (!equal_value(field, params, *defaulted))
            return invalid_argument(
                fmt::format("{} is {}: accepted is its default ({}), as a struct with struct_size {} lacks the field", field.name,
                            value_text(field, params), value_text(field, *defaulted), struct_size));
    }
    return {};
}

Status validate(XQAParams const& params) {
    ParamsRule const* const broken = first_broken_rule(params);
    return broken ? invalid_argument(describe(*broken, params)) : Status();
}

}  // namespace xqajit
