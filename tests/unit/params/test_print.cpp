#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "params/fields.h"
#include "params/shape_list.h"
#include "unit/params/shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

// Every field away from its default, in shapes that are valid.
std::vector<XQAParams> rich_shapes() {
    std::vector<XQAParams> shapes{decode_shape(), mla_shape()};
    XQAParams many = decode_shape();
    many.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    many.out_dtype = XQAJIT_DTYPE_FP8_E4M3;
    many.numeric = XQAJIT_NUMERIC_FP8;
    many.beam_width = 4;
    many.sinks = many.lse = many.input_kv = many.skip_softmax = many.pdl = 1;
    many.rope_style = XQAJIT_ROPE_GPTJ;
    many.rotary_dim = 64;
    many.sliding_window = 4096;
    many.softcap = 50;
    many.qk_scale = 0.1f;
    many.skip_softmax_threshold = 1.0f / 3.0f;
    many.division = XQAJIT_DIVISION_INVARIANT;
    many.nb_sub_seq = 7;
    many.non_causal = many.cross_attention = many.position_shift = 1;
    many.sink_tokens = 4;
    many.chunked_attention = 8192;
    many.position = XQAJIT_POSITION_YARN;
    many.on_miss = XQAJIT_ON_MISS_REFUSE;
    shapes.push_back(many);
    XQAParams tree = decode_shape();
    tree.q_dtype = XQAJIT_DTYPE_FP16;
    tree.kv_dtype = XQAJIT_DTYPE_INT8;
    tree.spec_dec = XQAJIT_SPEC_DEC_TREE;
    tree.q_len = 33;
    tree.page_size = 0;
    shapes.push_back(tree);
    for (XQAParams& shape : shapes) shape = normalize(shape).value();
    return shapes;
}

}  // namespace

TEST_CASE("a shape's JSON parses back to the same shape", "[params][json]") {
    for (XQAParams const& shape : rich_shapes()) {
        std::string const json = to_json(shape);
        CAPTURE(json);
        auto const parsed = parse_shape(json);
        REQUIRE(parsed.ok());
        CHECK(std::memcmp(&parsed->params, &shape, sizeof shape) == 0);
    }
}

TEST_CASE("the shapes of that test leave no field at its default", "[params][json]") {
    std::set<std::string> changed;
    for (XQAParams const& shape : rich_shapes())
        for (Field const& field : params_fields())
            if (contains(to_json(shape), std::string("\"") + field.name + "\": ")) changed.insert(field.name);
    for (Field const& field : params_fields()) {
        CAPTURE(field.name);
        // head_dim_v follows from head_dim and mla in every valid shape.
        CHECK((changed.count(field.name) == 1 || std::string(field.name) == "head_dim_v"));
    }
}

TEST_CASE("a shape's JSON leaves out what is at its default", "[params][json]") {
    CHECK(to_json(normalize(decode_shape()).value()) ==
          R"({"q_dtype": "bf16", "num_q_heads": 64, "num_kv_heads": 8, "head_dim": 128, "page_size": 32})");
}

TEST_CASE("a shape prints on one line what sets it apart", "[params]") {
    XQAParams params = decode_shape();
    params.kv_dtype = XQAJIT_DTYPE_FP8_E4M3;
    params.sliding_window = 4096;
    params.sinks = 1;
    CHECK(to_string(normalize(params).value()) == "bf16/fp8_e4m3 64:8 heads, D 128, page 32, window 4096, sinks");
    CHECK(to_string(normalize(mla_shape()).value()) == "bf16/bf16 128:1 heads, D 576/512 mla, page 64");
    std::set<std::string> lines;
    for (XQAParams const& shape : rich_shapes()) lines.insert(to_string(shape));
    CHECK(lines.size() == rich_shapes().size());
    for (std::string const& line : lines) CHECK_FALSE(contains(line, "\n"));
}

TEST_CASE("every enumeration value has a name, and no other value has one", "[params]") {
    struct Row {
        char const* (*name)(std::int32_t);
        std::vector<std::string> names;
    };
    std::vector<Row> const rows{
        {dtype_name, {"default", "fp16", "bf16", "fp8_e4m3", "int8", "nvfp4"}},
        {spec_dec_name, {"none", "linear", "tree"}},
        {numeric_name, {"default", "exact16", "fp8"}},
        {rope_style_name, {"none", "neox", "gptj"}},
        {position_name, {"default", "learned_absolute", "yarn", "alibi", "relative"}},
        {division_name, {"default", "static", "balanced", "invariant"}},
        {on_miss_name, {"default", "compile", "fallback", "refuse"}},
    };
    for (Row const& row : rows) {
        for (std::size_t i = 0; i < row.names.size(); ++i) CHECK(row.name(static_cast<std::int32_t>(i)) == row.names[i]);
        CHECK(row.name(static_cast<std::int32_t>(row.names.size())) == std::string("invalid"));
        CHECK(row.name(-1) == std::string("invalid"));
    }
    CHECK(dtype_bytes(XQAJIT_DTYPE_FP16) == 2);
    CHECK(dtype_bytes(XQAJIT_DTYPE_BF16) == 2);
    CHECK(dtype_bytes(XQAJIT_DTYPE_FP8_E4M3) == 1);
    CHECK(dtype_bytes(XQAJIT_DTYPE_INT8) == 1);
    for (std::int32_t const none : {-1, 0, 5, 6}) CHECK(dtype_bytes(none) == 0);
}
