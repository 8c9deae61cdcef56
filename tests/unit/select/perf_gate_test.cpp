#include "catch.h"
#include "shapes.h"

using namespace xqajit;

TEST_CASE("the perf gate asks for a quarter of the SMs", "[select]") {
    struct Case {
        std::uint32_t num_kv_heads, sm_count, batch;
        std::uint64_t past_len;
        bool multi_block, passes;
    };
    auto const c = GENERATE(values<Case>({
        {8, 132, 1, 100, true, false},      // 8 x 1 x 1 x 4 = 32
        {8, 132, 4, 100, true, false},      // 128
        {8, 132, 5, 100, true, true},       // 160
        {8, 128, 4, 100, true, true},       // exactly 128
        {8, 132, 1, 639, true, false},      // 639 / 128 = 4 parts: 128
        {8, 132, 1, 640, true, true},       // 5 parts: 160
        {8, 132, 1, 640, false, false},     // not divided
        {1, 132, 1, 33 * 128, true, true},  // 1 x 1 x 33 x 4 = 132
        {1, 132, 1, 33 * 128 - 1, true, false},
        {8, 132, 0, 1 << 20, true, false},  // nothing to launch
        {4096, 132, 0xffffffffu, UINT64_MAX, true, true},
    }));
    XQAParams shape = test::gqa_shape();
    shape.num_kv_heads = c.num_kv_heads;
    shape.num_q_heads = 8 * c.num_kv_heads;
    INFO(c.num_kv_heads << " heads, batch " << c.batch << ", past " << c.past_len);
    CHECK(perf_gate_passes(shape, c.sm_count, c.batch, c.past_len, c.multi_block) == c.passes);
}

TEST_CASE("drafts, MLA and an fp8 cache pass the perf gate at any size", "[select]") {
    XQAParams linear = test::gqa_shape(), tree = test::gqa_shape(), fp8 = test::gqa_shape(), int8 = test::gqa_shape();
    linear.spec_dec = XQAJIT_SPEC_DEC_LINEAR;
    tree.spec_dec = XQAJIT_SPEC_DEC_TREE;
    fp8.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    int8.kv_dtype = XQAJIT_DTYPE_INT8;
    for (XQAParams const& shape : {linear, tree, fp8, test::mla_shape()}) CHECK(perf_gate_passes(shape, 132, 1, 1, true));
    for (XQAParams const& shape : {int8, test::gqa_shape()}) CHECK_FALSE(perf_gate_passes(shape, 132, 1, 1, true));
}
