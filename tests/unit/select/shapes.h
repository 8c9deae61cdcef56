// Shapes and archs that the tests of selection and planning start from.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "select/select.h"

namespace xqajit::test {

inline bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline XQAParams normalized(XQAParams const& params) {
    Result<XQAParams> const result = normalize(params);
    if (!result.ok()) std::abort();  // a fault of the test itself
    return *result;
}

// Grouped-query attention as most models have it.
inline XQAParams gqa_shape() {
    XQAParams params{};
    params.struct_size = sizeof(params);
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 64;
    params.num_kv_heads = 8;
    params.head_dim = 128;
    params.page_size = 32;
    return normalized(params);
}

inline XQAParams mla_shape() {
    XQAParams params{};
    params.struct_size = sizeof(params);
    params.q_dtype = XQAJIT_DTYPE_BF16;
    params.num_q_heads = 128;
    params.num_kv_heads = 1;
    params.head_dim = 576;
    params.head_dim_v = 512;
    params.mla = 1;
    params.qk_scale = 0.1352337788608801f;
    params.page_size = 64;
    return normalized(params);
}

inline ArchFacts arch(char const* name) {
    Result<ArchFacts> const facts = arch_from_name(name);
    if (!facts.ok()) std::abort();
    return *facts;
}

inline constexpr char const* kArchNames[] = {"sm_80",   "sm_86",   "sm_87",   "sm_89",   "sm_90a",
                                             "sm_100a", "sm_103a", "sm_110a", "sm_120f", "sm_121"};

}  // namespace xqajit::test
