#include "params/fields.h"

#include <fmt/format.h>

#include <iterator>
#include <type_traits>

namespace xqajit {
namespace {

constexpr char const* kDtypes[] = {"default", "fp16", "bf16", "fp8_e4m3", "int8", "nvfp4"};
constexpr char const* kNumerics[] = {"default", "exact16", "fp8"};
constexpr char const* kSpecDecs[] = {"none", "linear", "tree"};
constexpr char const* kRopeStyles[] = {"none", "neox", "gptj"};
constexpr char const* kDivisions[] = {"default", "static", "balanced", "invariant"};
constexpr char const* kOnMisses[] = {"default", "compile", "fallback", "refuse"};
constexpr char const* kPositions[] = {"default", "learned_absolute", "yarn", "alibi", "relative"};

// clang-format off
constexpr Field kFields[] = {
    {"q_dtype", &XQAParams::q_dtype, kDtypes, true},
    {"kv_dtype", &XQAParams::kv_dtype, kDtypes},
    {"out_dtype", &XQAParams::out_dtype, kDtypes},
    {"numeric", &XQAParams::numeric, kNumerics},
    {"num_q_heads", &XQAParams::num_q_heads, {}, true},
    {"num_kv_heads", &XQAParams::num_kv_heads, {}, true},
    {"head_dim", &XQAParams::head_dim, {}, true},
    {"head_dim_v", &XQAParams::head_dim_v, {}},
    {"page_size", &XQAParams::page_size, {}},
    {"beam_width", &XQAParams::beam_width, {}},
    {"spec_dec", &XQAParams::spec_dec, kSpecDecs},
    {"q_len", &XQAParams::q_len, {}},
    {"mla", &XQAParams::mla, {}},
    {"sinks", &XQAParams::sinks, {}},
    {"lse", &XQAParams::lse, {}},
    {"input_kv", &XQAParams::input_kv, {}},
    {"rope_style", &XQAParams::rope_style, kRopeStyles},
    {"rotary_dim", &XQAParams::rotary_dim, {}},
    {"skip_softmax", &XQAParams::skip_softmax, {}},
    {"sliding_window", &XQAParams::sliding_window, {}},
    {"softcap", &XQAParams::softcap, {}},
    {"qk_scale", &XQAParams::qk_scale, {}},
    {"skip_softmax_threshold", &XQAParams::skip_softmax_threshold, {}},
    {"division", &XQAParams::division, kDivisions},
    {"nb_sub_seq", &XQAParams::nb_sub_seq, {}},
    {"pdl", &XQAParams::pdl, {}},
    {"non_causal", &XQAParams::non_causal, {}},
    {"cross_attention", &XQAParams::cross_attention, {}},
    {"position_shift", &XQAParams::position_shift, {}},
    {"sink_tokens", &XQAParams::sink_tokens, {}},
    {"chunked_attention", &XQAParams::chunked_attention, {}},
    {"position", &XQAParams::position, kPositions},
    {"on_miss", &XQAParams::on_miss, kOnMisses},
};
// clang-format on
static_assert(sizeof(XQAParams) == 4 * (std::size(kFields) + 1), "a field of xqajit_params is missing from the table");

char const* name_of(std::span<char const* const> names, std::int32_t value) {
    return value >= 0 && static_cast<std::size_t>(value) < names.size() ? names[static_cast<std::size_t>(value)] : "invalid";
}

}  // namespace

std::span<Field const> params_fields() { return kFields; }

Field const* find_field(std::string_view name) {
    for (Field const& field : kFields)
        if (field.name == name) return &field;
    return nullptr;
}

char const* dtype_name(std::int32_t dtype) { return name_of(kDtypes, dtype); }
char const* spec_dec_name(std::int32_t spec_dec) { return name_of(kSpecDecs, spec_dec); }
char const* numeric_name(std::int32_t numeric) { return name_of(kNumerics, numeric); }
char const* rope_style_name(std::int32_t style) { return name_of(kRopeStyles, style); }
char const* position_name(std::int32_t position) { return name_of(kPositions, position); }
char const* division_name(std::int32_t division) { return name_of(kDivisions, division); }
char const* on_miss_name(std::int32_t on_miss) { return name_of(kOnMisses, on_miss); }

std::uint32_t dtype_bytes(std::int32_t dtype) {
    switch (dtype) {
        case XQAJIT_DTYPE_FP16:
        case XQAJIT_DTYPE_BF16:
            return 2;
        case XQAJIT_DTYPE_FP8_E4M3:
        case XQAJIT_DTYPE_INT8:
            return 1;
        default:
            return 0;
    }
}

std::string value_text(Field const& field, XQAParams const& params) {
    return std::visit(
        [&](auto member) -> std::string {
            auto const value = params.*member;
            if constexpr (std::is_same_v<decltype(member), std::int32_t XQAParams::*>) {
                if (value >= 0 && static_cast<std::size_t>(value) < field.names.size())
                    return field.names[static_cast<std::size_t>(value)];
            }
            return fmt::format("{}", value);
        },
        field.member);
}

bool equal_value(Field const& field, XQAParams const& a, XQAParams const& b) {
    return std::visit([&](auto member) { return a.*member == b.*member; }, field.member);
}

}  // namespace xqajit
