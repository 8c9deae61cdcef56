#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "params/fields.h"
#include "unit/params/shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kHuge = 0xffffffffu;

using Change = std::function<void(XQAParams&)>;

// A change that makes `field` illegal, and how the error shows its value and its range.
struct Bad {
    char const* field;
    char const* value;
    char const* accepted;
    Change change;
};

void set_flag(XQAParams& params, Field const& field, std::int32_t value) {
    params.*std::get<std::int32_t XQAParams::*>(field.member) = value;
}

// clang-format off
std::vector<Bad> const kBad{
    {"q_dtype", "default", "are fp16, bf16", [](auto& p) { p.q_dtype = XQAJIT_DTYPE_DEFAULT; }},
    {"q_dtype", "fp8_e4m3", "are fp16, bf16", [](auto& p) { p.q_dtype = XQAJIT_DTYPE_FP8_E4M3; }},
    {"q_dtype", "-1", "are fp16, bf16", [](auto& p) { p.q_dtype = -1; }},
    {"kv_dtype", "fp16", "are fp16 and bf16 (the same as q_dtype), fp8_e4m3, int8", [](auto& p) { p.kv_dtype = XQAJIT_DTYPE_FP16; }},
    {"kv_dtype", "6", "are fp16 and bf16 (the same as q_dtype), fp8_e4m3, int8", [](auto& p) { p.kv_dtype = 6; }},
    {"out_dtype", "fp16", "are fp16 and bf16 (the same as q_dtype), fp8_e4m3", [](auto& p) { p.out_dtype = XQAJIT_DTYPE_FP16; }},
    {"out_dtype", "int8", "are fp16 and bf16 (the same as q_dtype), fp8_e4m3", [](auto& p) { p.out_dtype = XQAJIT_DTYPE_INT8; }},
    {"numeric", "3", "are exact16, fp8", [](auto& p) { p.numeric = 3; }},
    {"num_q_heads", "0", "are multiples of num_kv_heads, 1..128 times it", [](auto& p) { p.num_q_heads = 0; }},
    {"num_q_heads", "63", "are multiples of num_kv_heads, 1..128 times it", [](auto& p) { p.num_q_heads = 63; }},
    {"num_q_heads", "1032", "are multiples of num_kv_heads, 1..128 times it", [](auto& p) { p.num_q_heads = 129 * 8; }},
    {"num_q_heads", "4294967295", "are multiples of num_kv_heads, 1..128 times it", [](auto& p) { p.num_q_heads = kHuge; }},
    {"num_kv_heads", "0", "are 1..4096", [](auto& p) { p.num_kv_heads = 0; }},
    {"num_kv_heads", "4097", "are 1..4096", [](auto& p) { p.num_kv_heads = 4097; p.num_q_heads = 4097; }},
    {"num_kv_heads", "2", "is 1 with mla", [](auto& p) { p = mla_shape(); p.num_kv_heads = 2; }},
    {"head_dim", "0", "are multiples of 16 in 16..256; 576 with mla", [](auto& p) { p.head_dim = 0; }},
    {"head_dim", "272", "are multiples of 16 in 16..256; 576 with mla", [](auto& p) { p.head_dim = 272; }},
    {"head_dim", "576", "are multiples of 16 in 16..256; 576 with mla", [](auto& p) { p.head_dim = 576; }},
    {"head_dim", "128", "are multiples of 16 in 16..256; 576 with mla", [](auto& p) { p = mla_shape(); p.head_dim = 128; }},
    {"head_dim_v", "64", "is head_dim; 512 with mla", [](auto& p) { p.head_dim_v = 64; }},
    {"head_dim_v", "576", "is head_dim; 512 with mla", [](auto& p) { p = mla_shape(); p.head_dim_v = 576; }},
    {"page_size", "24", "are 0, 8, 16, 32, 64, 128, 256, 512, 1024", [](auto& p) { p.page_size = 24; }},
    {"page_size", "2048", "are 0, 8, 16, 32, 64, 128, 256, 512, 1024", [](auto& p) { p.page_size = 2048; }},
    {"beam_width", "9", "are 1..8", [](auto& p) { p.beam_width = 9; }},
    {"beam_width", "4", "is 1 with spec_dec", [](auto& p) { p.beam_width = 4; p.spec_dec = XQAJIT_SPEC_DEC_LINEAR; }},
    {"spec_dec", "3", "are none, linear, tree", [](auto& p) { p.spec_dec = 3; }},
    {"q_len", "65", "are 1..64", [](auto& p) { p.q_len = 65; p.spec_dec = XQAJIT_SPEC_DEC_TREE; }},
    {"q_len", "2", "is 1 without spec_dec", [](auto& p) { p.q_len = 2; }},
    {"mla", "2", "are 0, 1", [](auto& p) { p.mla = 2; }},
    {"sinks", "-1", "are 0, 1", [](auto& p) { p.sinks = -1; }},
    {"lse", "2", "are 0, 1", [](auto& p) { p.lse = 2; }},
    {"input_kv", "2", "are 0, 1", [](auto& p) { p.input_kv = 2; }},
    {"rope_style", "3", "are none, neox, gptj", [](auto& p) { p.input_kv = 1; p.rope_style = 3; }},
    {"rope_style", "neox", "is none without input_kv", [](auto& p) { p.rope_style = XQAJIT_ROPE_NEOX; }},
    {"rotary_dim", "24", "are multiples of 16 up to head_dim", [](auto& p) { p.input_kv = 1; p.rope_style = 1; p.rotary_dim = 24; }},
    {"rotary_dim", "144", "are multiples of 16 up to head_dim", [](auto& p) { p.input_kv = 1; p.rope_style = 1; p.rotary_dim = 144; }},
    {"rotary_dim", "64", "is 0 without rope_style", [](auto& p) { p.input_kv = 1; p.rotary_dim = 64; }},
    {"skip_softmax", "7", "are 0, 1", [](auto& p) { p.skip_softmax = 7; }},
    {"sliding_window", "2147483648", "are 0..2147483647", [](auto& p) { p.sliding_window = 0x80000000u; }},
    {"sliding_window", "128", "is 0 with spec_dec tree", [](auto& p) { p.sliding_window = 128; p.spec_dec = XQAJIT_SPEC_DEC_TREE; }},
    {"softcap", "-50", "are 0 and finite values >= 1.2e-38", [](auto& p) { p.softcap = -50; }},
    {"softcap", "inf", "are 0 and finite values >= 1.2e-38", [](auto& p) { p.softcap = kInf; }},
    {"softcap", "1e-39", "are 0 and finite values >= 1.2e-38", [](auto& p) { p.softcap = 1e-39f; }},
    {"softcap", "nan", "are 0 and finite values >= 1.2e-38", [](auto& p) { p.softcap = kNan; }},
    {"qk_scale", "-0.5", "are finite values >= 0", [](auto& p) { p.qk_scale = -0.5f; }},
    {"qk_scale", "inf", "are finite values >= 0", [](auto& p) { p.qk_scale = kInf; }},
    {"qk_scale", "nan", "are finite values >= 0", [](auto& p) { p.qk_scale = kNan; }},
    {"qk_scale", "0", "are values > 0 with mla, which has no default", [](auto& p) { p = mla_shape(); p.qk_scale = 0; }},
    {"skip_softmax_threshold", "-1", "are finite values >= 0", [](auto& p) { p.skip_softmax = 1; p.skip_softmax_threshold = -1; }},
    {"skip_softmax_threshold", "nan", "are finite values >= 0", [](auto& p) { p.skip_softmax = 1; p.skip_softmax_threshold = kNan; }},
    {"skip_softmax_threshold", "5", "is 0 without skip_softmax", [](auto& p) { p.skip_softmax_threshold = 5; }},
    {"division", "4", "are default, static, balanced, invariant", [](auto& p) { p.division = 4; }},
    {"nb_sub_seq", "6001", "are 0..6000", [](auto& p) { p.nb_sub_seq = 6001; }},
    {"pdl", "2", "are 0, 1", [](auto& p) { p.pdl = 2; }},
    {"non_causal", "2", "are 0, 1", [](auto& p) { p.non_causal = 2; }},
    {"cross_attention", "-1", "are 0, 1", [](auto& p) { p.cross_attention = -1; }},
    {"position_shift", "2", "are 0, 1", [](auto& p) { p.position_shift = 2; }},
    {"sink_tokens", "4294967295", "are 0..2147483647", [](auto& p) { p.sink_tokens = kHuge; }},
    {"chunked_attention", "4294967295", "are 0..2147483647", [](auto& p) { p.chunked_attention = kHuge; }},
    {"on_miss", "4", "are default, compile, fallback, refuse", [](auto& p) { p.on_miss = 4; }},
    {"position", "5", "are default, learned_absolute, yarn, alibi, relative", [](auto& p) { p.position = 5; }},
};
// clang-format on

}  // namespace

TEST_CASE("every field out of its range is refused with field, value and range", "[params]") {
    std::set<std::string> seen;
    for (Bad const& bad : kBad) {
        CAPTURE(bad.field, bad.value);
        XQAParams params = decode_shape();
        bad.change(params);
        Status const status = check(params);
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(status.message() == std::string(bad.field) + " is " + bad.value + ": accepted " + bad.accepted);
        seen.insert(bad.field);
    }
    for (Field const& field : params_fields()) {
        CAPTURE(field.name);
        CHECK(seen.count(field.name) == 1);
    }
}

TEST_CASE("every rule refuses some row of the table, and every field has a range", "[params]") {
    std::set<ParamsRule const*> used;
    for (Bad const& bad : kBad) {
        XQAParams params = decode_shape();
        bad.change(params);
        auto const normalized = normalize(params);
        REQUIRE(normalized.ok());
        used.insert(first_broken_rule(*normalized));
    }
    for (ParamsRule const& rule : params_rules()) {
        CAPTURE(rule.field, rule.accepted);
        CHECK(used.count(&rule) == 1);
    }
    for (Field const& field : params_fields()) CHECK(std::string(accepted_range(field.name)) != "");
}

TEST_CASE("every head dimension that is a multiple of 16 in range is accepted, and no other", "[params][A02]") {
    for (std::uint32_t dim = 0; dim <= 640; ++dim) {
        CAPTURE(dim);
        XQAParams params = decode_shape();
        params.head_dim = dim;
        CHECK(check(params).ok() == (dim >= 16 && dim <= 256 && dim % 16 == 0));
        if (dim == 192) {
            params.head_dim_v = 128;
            CHECK(check(params).message() == "head_dim_v is 128: accepted is head_dim; 512 with mla");
        }
    }
}

TEST_CASE("every page size that is a power of two in range is accepted, and no other", "[params][A01]") {
    std::set<std::uint32_t> const accepted{0, 8, 16, 32, 64, 128, 256, 512, 1024};
    for (std::uint32_t size = 0; size <= 2100; ++size) {
        XQAParams params = decode_shape();
        params.page_size = size;
        CAPTURE(size);
        CHECK(check(params).ok() == (accepted.count(size) == 1));
    }
}

TEST_CASE("MLA takes any number of query heads on one KV head", "[params][A04]") {
    for (std::uint32_t heads = 1; heads <= 128; ++heads) {
        XQAParams params = mla_shape();
        params.num_q_heads = heads;
        CAPTURE(heads);
        CHECK(check(params).ok());
    }
    XQAParams params = mla_shape();
    params.num_q_heads = 129;
    CHECK_FALSE(check(params).ok());
}

TEST_CASE("every group size from 1 to 128 is accepted", "[params]") {
    for (std::uint32_t group = 1; group <= 128; ++group) {
        XQAParams params = decode_shape();
        params.num_kv_heads = 3;
        params.num_q_heads = 3 * group;
        CAPTURE(group);
        CHECK(check(params).ok());
    }
}

TEST_CASE("what is in range but computed by no kernel is left to admission", "[params]") {
    std::vector<Change> const changes{
        [](auto& p) { p.non_causal = 1; },
        [](auto& p) { p.cross_attention = 1; },
        [](auto& p) { p.position_shift = 1; },
        [](auto& p) { p.sink_tokens = 4; },
        [](auto& p) { p.chunked_attention = 8192; },
        [](auto& p) { p.position = XQAJIT_POSITION_ALIBI; },
        [](auto& p) { p.kv_dtype = XQAJIT_DTYPE_NVFP4; },
    };
    for (Change const& change : changes) {
        XQAParams params = decode_shape();
        change(params);
        CHECK(check(params).ok());
    }
}

TEST_CASE("flags are 0 or 1, every one of them", "[params]") {
    for (Field const& field : params_fields()) {
        if (!is_flag(field)) continue;
        CAPTURE(field.name);
        XQAParams params = decode_shape();
        set_flag(params, field, 2);
        CHECK(contains(check(params).message(), std::string(field.name) + " is 2: accepted are 0, 1"));
        set_flag(params, field, std::numeric_limits<std::int32_t>::min());
        CHECK(contains(check(params).message(), std::string(field.name) + " is -2147483648: accepted are 0, 1"));
    }
}
