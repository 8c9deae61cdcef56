#include "gpu/shape_text.h"

#include <nlohmann/json.hpp>

#include "reference/codec.h"

namespace xqajit::testing {

std::string shape_json(xqajit_params const& p) {
    nlohmann::json shape;
    auto const number = [&](char const* key, auto value) {
        if (value != 0) shape[key] = value;
    };
    auto const flag = [&](char const* key, std::int32_t value) {
        if (value != 0) shape[key] = true;
    };
    auto const dtype = [&](char const* key, std::int32_t value) {
        if (value != XQAJIT_DTYPE_DEFAULT) shape[key] = name_of(value);
    };
    dtype("q_dtype", p.q_dtype);
    dtype("kv_dtype", p.kv_dtype);
    dtype("out_dtype", p.out_dtype);
    if (p.numeric != XQAJIT_NUMERIC_DEFAULT) shape["numeric"] = p.numeric == XQAJIT_NUMERIC_FP8 ? "fp8" : "exact16";
    number("num_q_heads", p.num_q_heads);
    number("num_kv_heads", p.num_kv_heads);
    number("head_dim", p.head_dim);
    number("head_dim_v", p.head_dim_v);
    shape["page_size"] = p.page_size;
    number("beam_width", p.beam_width);
    if (p.spec_dec != XQAJIT_SPEC_DEC_NONE) shape["spec_dec"] = p.spec_dec == XQAJIT_SPEC_DEC_TREE ? "tree" : "linear";
    number("q_len", p.q_len);
    flag("mla", p.mla);
    flag("sinks", p.sinks);
    flag("lse", p.lse);
    flag("input_kv", p.input_kv);
    if (p.rope_style != XQAJIT_ROPE_NONE) shape["rope_style"] = p.rope_style == XQAJIT_ROPE_NEOX ? "neox" : "gptj";
    number("rotary_dim", p.rotary_dim);
    flag("skip_softmax", p.skip_softmax);
    number("skip_softmax_threshold", p.skip_softmax_threshold);
    number("sliding_window", p.sliding_window);
    number("softcap", p.softcap);
    number("qk_scale", p.qk_scale);
    return shape.dump();
}

}  // namespace xqajit::testing
