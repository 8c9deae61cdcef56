// Shapes that the tests of this folder start from.
#pragma once

#include <string>

#include "params/xqa_params.h"

namespace xqajit::test {

inline XQAParams decode_shape() {
    XQAParams params{};
    params.struct_size = sizeof params;
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 64;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.page_size = 32;
    return params;
}

inline XQAParams mla_shape() {
    XQAParams params = decode_shape();
    params.mla = 1;
    params.num_q_heads = 128;
    params.num_kv_heads = 1;
    params.head_dim = 576;
    params.qk_scale = 0.1352337788608801f;
    params.page_size = 64;
    return params;
}

inline Status check(XQAParams const& params) {
    Result<XQAParams> const normalized = normalize(params);
    return normalized.ok() ? validate(*normalized) : normalized.status();
}

inline bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace xqajit::test
