// The arguments of a launch that appends: input_kv.
#include "unit/params/calls.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

Call without_rope() {
    return with(fused(), [](Call& c) {
        c.params.rope_style = XQAJIT_ROPE_NONE;
        c.params.rotary_dim = 0;
        c.args.cos_sin = nullptr;
        c.args.max_pos = 0;
    });
}

}  // namespace

TEST_CASE("a launch that appends is accepted with and without rotation", "[params][run_args]") {
    for (Call const& call : {fused(), without_rope()}) {
        CHECK(run(call).status().message() == "");
        RunArgs empty{};
        empty.struct_size = sizeof empty;
        CHECK(run({call.params, empty}).ok());
    }
}

TEST_CASE("qkv takes the place of q, and neither may be set for the other", "[params][run_args]") {
    check_all({
        {with(fused(), [](Call& c) { c.args.q = at<void>(0x1000); }), "q is set: accepted is null with input_kv, whose qkv has it"},
        {with(fused(), [](Call& c) { c.args.qkv = nullptr; }), "qkv is null: accepted are device pointers"},
        {with(fused(), [](Call& c) { c.args.qkv = at<void>(0x1008); }), "qkv is 0x1008: accepted are addresses on 16 bytes"},
        {with(fused(), [](Call& c) { c.args.q_stride_row = 128; }),
         "q_stride_row is 128: accepted is 0 with input_kv, whose qkv has q"},
        {with(fused(), [](Call& c) { c.args.q_stride_head = 128; }), "q_stride_head is 128: accepted is 0 with input_kv"},
        {with(paged(), [](Call& c) { c.args.qkv = at<void>(0x1000); }),
         "qkv is set: accepted is null without input_kv in the shape"},
        {with(paged(), [](Call& c) { c.args.qkv_stride_row = 128; }),
         "qkv_stride_row is 128: accepted is 0 without input_kv in the shape"},
        {with(paged(), [](Call& c) { c.args.qkv_stride_head = 128; }), "qkv_stride_head is 128: accepted is 0 without input_kv"},
    });
}

TEST_CASE("the angles belong to a rotation, and reach as far as the lengths", "[params][run_args][W40]") {
    check_all({
        {with(fused(), [](Call& c) { c.args.cos_sin = nullptr; }), "cos_sin is null: accepted are device pointers"},
        {with(fused(), [](Call& c) { c.args.cos_sin = at<float>(0xa004); }),
         "cos_sin is 0xa004: accepted are addresses on 16 bytes"},
        {with(fused(), [](Call& c) { c.args.max_pos = 3199; }), "max_pos is 3199: accepted are 3200..2147483647, max_len and more"},
        {with(fused(), [](Call& c) { c.args.max_pos = 1ull << 31; }), "max_pos is 2147483648: accepted are 3200..2147483647"},
        {with(without_rope(), [](Call& c) { c.args.cos_sin = at<float>(0xa000); }),
         "cos_sin is set: accepted is null without rope_style in the shape"},
        {with(without_rope(), [](Call& c) { c.args.max_pos = 3200; }),
         "max_pos is 3200: accepted is 0 without rope_style in the shape"},
        {with(paged(), [](Call& c) { c.args.cos_sin = at<float>(0xa000); }), "cos_sin is set: accepted is null without rope_style"},
    });
    // A bound of the lengths below what the pages hold asks for as many positions.
    CHECK(run(with(fused(), [](Call& c) { c.args.max_len = c.args.max_pos = 100; })).ok());
    // Without a token there is no position.
    CHECK(run(with(fused(),
                   [](Call& c) {
                       c.args.max_pages = 0;
                       c.args.max_pos = 0;
                       c.args.cos_sin = nullptr;
                   }))
              .status()
              .message() == "");
}

TEST_CASE("the strides of qkv count its heads of q, K and V", "[params][run_args]") {
    auto const packed = run(fused());
    REQUIRE(packed.ok());
    XQAParams const shape = fused().params;
    std::int64_t const heads = shape.num_q_heads + 2 * std::int64_t{shape.num_kv_heads};
    CHECK(packed->qkv_stride_head == shape.head_dim);
    CHECK(packed->qkv_stride_row == heads * shape.head_dim);
    CHECK(packed->q_stride_row == 0);
    auto const padded = run(with(fused(), [](Call& c) { c.args.qkv_stride_head = 136; }));
    REQUIRE(padded.ok());
    CHECK(padded->qkv_stride_row == heads * 136);
    check_all({
        {with(fused(), [](Call& c) { c.args.qkv_stride_head = 132; }),
         "qkv_stride_head is 132 elements of 2 bytes: accepted are multiples of 8 (16 bytes) from 128 up, or 0 for packed"},
        {with(fused(), [](Call& c) { c.args.qkv_stride_row = 64; }), "qkv_stride_row is 64 elements of 2 bytes"},
        {with(fused(), [](Call& c) { c.args.qkv_stride_row = std::int64_t{1} << 60; }), "qkv_stride_row is 1152921504606846976"},
    });
}

TEST_CASE("a caller of an older header has no qkv to give", "[params][run_args]") {
    Call call = fused();
    call.args.struct_size = offsetof(RunArgs, qkv);
    CHECK(run(call).status().message() == "max_pos is 0: accepted are 3200..2147483647, max_len and more");
    call = without_rope();
    call.args.struct_size = offsetof(RunArgs, qkv);
    CHECK(run(call).status().message() == "qkv is null: accepted are device pointers");
    call = paged();
    call.args.struct_size = offsetof(RunArgs, qkv);
    CHECK(run(call).ok());
}
