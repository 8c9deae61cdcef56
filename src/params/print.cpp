#include <fmt/format.h>

#include "params/fields.h"

namespace xqajit {
namespace {

// What normalize() makes of the required fields alone: fields that equal it need not be written.
XQAParams defaults_of(XQAParams const& params) {
    XQAParams required{};
    required.struct_size = sizeof(XQAParams);
    required.q_dtype = params.q_dtype;
    required.num_q_heads = params.num_q_heads;
    required.num_kv_heads = params.num_kv_heads;
    required.head_dim = params.head_dim;
    required.mla = params.mla;
    required.rope_style = params.rope_style;
    XQAParams defaults = normalize(required).value();  // struct_size is right, and nothing else can fail
    defaults.mla = 0;
    defaults.rope_style = XQAJIT_ROPE_NONE;
    return defaults;
}

}  // namespace

std::string to_string(XQAParams const& params) {
    std::string text = fmt::format("{}/{} {}:{} heads, D {}", dtype_name(params.q_dtype), dtype_name(params.kv_dtype),
                                   params.num_q_heads, params.num_kv_heads, params.head_dim);
    if (params.mla != 0) text += fmt::format("/{} mla", params.head_dim_v);
    text += params.page_size == 0 ? ", contiguous" : fmt::format(", page {}", params.page_size);
    if (params.beam_width > 1) text += fmt::format(", beam {}", params.beam_width);
    if (params.spec_dec != XQAJIT_SPEC_DEC_NONE)
        text += fmt::format(", {} draft of {}", spec_dec_name(params.spec_dec), params.q_len);
    if (params.sliding_window != 0) text += fmt::format(", window {}", params.sliding_window);
    if (params.softcap != 0) text += fmt::format(", softcap {}", params.softcap);
    if (params.sinks != 0) text += ", sinks";
    if (params.lse != 0) text += ", lse";
    if (params.out_dtype != params.q_dtype) text += fmt::format(", {} out", dtype_name(params.out_dtype));
    if (params.numeric == XQAJIT_NUMERIC_FP8) text += ", fp8 math";
    if (params.input_kv != 0) text += fmt::format(", input kv, rope {}", rope_style_name(params.rope_style));
    if (params.skip_softmax != 0) text += ", skip softmax";
    return text;
}

std::string to_json(XQAParams const& params) {
    XQAParams const defaults = defaults_of(params);
    std::string text;
    for (Field const& field : params_fields()) {
        if (!field.required && equal_value(field, params, defaults)) continue;
        std::string const value = value_text(field, params);
        text += text.empty() ? "" : ", ";
        text +=
            field.names.empty() ? fmt::format("\"{}\": {}", field.name, value) : fmt::format("\"{}\": \"{}\"", field.name, value);
    }
    return "{" + text + "}";
}

}  // namespace xqajit
