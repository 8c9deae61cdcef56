#include "params/shape_list.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "catch.h"
#include "params/fields.h"
#include "unit/params/shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

constexpr char kBase[] = R"("q_dtype": "bf16", "num_q_heads": 64, "num_kv_heads": 8, "head_dim": 128)";

// A list whose only shape has the base keys on line 3 and `extra` on line 4.
std::string list_of(std::string const& extra, std::string const& defaults = "") {
    std::string const middle = defaults.empty() ? "" : "\"defaults\": {" + defaults + "}, ";
    return "{\"version\": 1, " + middle + "\"shapes\": [\n{\n" + kBase + (extra.empty() ? "" : ",\n" + extra) + "\n}]}";
}

std::string message_of(std::string const& text) {
    auto const list = parse_shape_list(text);
    CHECK((list.ok() || list.status().code() == XQAJIT_INVALID_ARGUMENT));
    return list.status().message();
}

std::vector<std::uint32_t> page_sizes(std::vector<ShapeEntry> const& entries) {
    std::vector<std::uint32_t> sizes;
    for (ShapeEntry const& entry : entries) sizes.push_back(entry.params.page_size);
    return sizes;
}

}  // namespace

TEST_CASE("a list of one shape gives it normalized", "[params][shape_list]") {
    auto const list =
        parse_shape_list(list_of(R"("name": "a model", "kv_dtype": "int8", "lse": true, "sinks": 1, "pdl": false, "softcap": 30)"));
    REQUIRE(list.ok());
    REQUIRE(list->size() == 1);
    ShapeEntry const& entry = list->front();
    CHECK(entry.name == "a model");
    CHECK(entry.tp == 1);
    CHECK(entry.params.kv_dtype == XQAJIT_DTYPE_INT8);
    CHECK(entry.params.out_dtype == XQAJIT_DTYPE_BF16);
    CHECK(entry.params.lse == 1);
    CHECK(entry.params.sinks == 1);
    CHECK(entry.params.pdl == 0);
    CHECK(entry.params.softcap == 30.0f);
    CHECK(entry.params.struct_size == sizeof(XQAParams));
}

TEST_CASE("lists multiply, the last key varying fastest, and duplicates stay", "[params][shape_list]") {
    auto const list = parse_shape_list(list_of(R"("page_size": [16, 32, 32], "kv_dtype": ["bf16", "fp8_e4m3"])"));
    REQUIRE(list.ok());
    CHECK(page_sizes(*list) == std::vector<std::uint32_t>{16, 16, 32, 32, 32, 32});
    CHECK((*list)[0].params.kv_dtype == XQAJIT_DTYPE_BF16);
    CHECK((*list)[1].params.kv_dtype == XQAJIT_DTYPE_FP8_E4M3);
}

TEST_CASE("a shape's own keys replace the defaults", "[params][shape_list]") {
    auto const list =
        parse_shape_list(R"({"version": 1, "defaults": {"q_dtype": "fp16", "page_size": [16, 32], "head_dim": 64, "lse": 1},
        "shapes": [{"num_q_heads": 8, "num_kv_heads": 8},
                   {"num_q_heads": 8, "num_kv_heads": 8, "page_size": 64, "lse": 0}]})");
    REQUIRE(list.ok());
    CHECK(page_sizes(*list) == std::vector<std::uint32_t>{16, 32, 64});
    CHECK((*list)[0].params.lse == 1);
    CHECK((*list)[2].params.lse == 0);
    CHECK((*list)[2].params.head_dim == 64);
}

TEST_CASE("tensor parallelism divides heads, and replicates KV heads beyond their number", "[params][shape_list]") {
    struct Row {
        int tp, q, kv, q_rank, kv_rank;
    };
    for (Row const row : {Row{1, 64, 8, 64, 8}, Row{2, 64, 8, 32, 4}, Row{8, 64, 8, 8, 1}, Row{16, 64, 8, 4, 1},
                          Row{64, 64, 8, 1, 1}, Row{5, 40, 10, 8, 2}, Row{8, 128, 1, 16, 1}}) {
        CAPTURE(row.tp, row.q, row.kv);
        auto const list = parse_shape_list(fmt::format(
            R"({{"version": 1, "shapes": [{{"q_dtype": "bf16", "head_dim": 64, "num_q_heads": {}, "num_kv_heads": {}, "tp": {}}}]}})",
            row.q, row.kv, row.tp));
        REQUIRE(list.ok());
        CHECK(list->front().tp == static_cast<std::uint32_t>(row.tp));
        CHECK(list->front().params.num_q_heads == static_cast<std::uint32_t>(row.q_rank));
        CHECK(list->front().params.num_kv_heads == static_cast<std::uint32_t>(row.kv_rank));
    }
    for (int const tp : {3, 5, 128})  // of 64 and 8 heads
        CHECK(message_of(list_of(fmt::format("\"tp\": {}", tp))) ==
              fmt::format(
                  "line 2: tp is {}: accepted are divisors of num_q_heads (64) that divide num_kv_heads (8) or are multiples of it",
                  tp));
    // 12 is a divisor of 24 query heads, but 8 KV heads neither divide by it nor into it.
    CHECK(contains(
        message_of(R"({"version":1,"shapes":[{"q_dtype":"bf16","head_dim":64,"num_q_heads":24,"num_kv_heads":8,"tp":12}]})"),
        "tp is 12: accepted are divisors of num_q_heads (24)"));
}

TEST_CASE("floats keep their value", "[params][shape_list]") {
    for (float const value : {0.1352337788608801f, 1.0f / 3, 0.08333333333333333f, 1e-30f, 3.4e38f, 1e-45f}) {
        auto const list = parse_shape_list(list_of(fmt::format("\"qk_scale\": {}", value)));
        REQUIRE(list.ok());
        CHECK(list->front().params.qk_scale == value);
        CHECK(parse_shape(to_json(list->front().params))->params.qk_scale == value);
    }
}

TEST_CASE("every key refuses values of a wrong kind with line, key, value and range", "[params][shape_list]") {
    for (Field const& field : params_fields()) {
        bool const number = field.names.empty();
        std::vector<std::pair<std::string, std::string>> bad{
            {"null", "null"}, {"{}", "an object"}, {"[]", "an empty list"}, {"[[1]]", "a list"}};
        if (number) bad.insert(bad.end(), {{"\"many\"", "'many'"}, {"\"1\"", "'1'"}});
        if (number && !std::holds_alternative<float XQAParams::*>(field.member))
            bad.insert(
                bad.end(),
                {{"-1", "-1"}, {"1.0", "1.0"}, {"4294967296", "4294967296"}, {"18446744073709551616", "18446744073709551616"}});
        if (number && !is_flag(field)) bad.push_back({"true", "true"});
        if (is_flag(field)) bad.push_back({"2", "2"});
        if (std::holds_alternative<float XQAParams::*>(field.member))
            bad.insert(bad.end(), {{"-1", "-1"}, {"1e60", "1e60"}, {"1e-60", "1e-60"}});
        if (!number) bad.insert(bad.end(), {{"1", "1"}, {"\"other\"", "'other'"}, {"\"\"", "''"}, {"true", "true"}});
        for (auto const& [json, shown] : bad) {
            // The field alone on line 2, the other required ones on line 1.
            std::string text = "{\"version\": 1, \"shapes\": [{\"skip_softmax\": 1, ";
            for (auto const& [key, value] :
                 {std::pair{"q_dtype", "\"bf16\""}, {"num_q_heads", "64"}, {"num_kv_heads", "8"}, {"head_dim", "128"}})
                if (std::string(field.name) != key) text += fmt::format("\"{}\": {}, ", key, value);
            if (std::string(field.name) == "skip_softmax") text = "{\"version\": 1, \"shapes\": [{" + std::string(kBase) + ", ";
            text += fmt::format("\n\"{}\": {}\n}}]}}", field.name, json);
            CAPTURE(text);
            CHECK(message_of(text) == fmt::format("line 2: {} is {}: accepted {}", field.name, shown, accepted_range(field.name)));
        }
    }
}

TEST_CASE("a value out of its range is found on its own line, in lists and defaults too", "[params][shape_list]") {
    CHECK(message_of(list_of("\"page_size\": 24")) ==
          "line 4: page_size is 24: accepted are 0, 8, 16, 32, 64, 128, 256, 512, 1024");
    CHECK(message_of(list_of("\"page_size\": [16,\n32,\n48\n]")) ==
          "line 6: page_size is 48: accepted are 0, 8, 16, 32, 64, 128, 256, 512, 1024");
    CHECK(message_of(list_of("", "\n\"page_size\": 1")) ==
          "line 2: page_size is 1: accepted are 0, 8, 16, 32, 64, 128, 256, 512, 1024");
    CHECK(message_of(list_of("\"kv_dtype\": \"fp8\"")) ==
          "line 4: kv_dtype is 'fp8': accepted are fp16 and bf16 (the same as q_dtype), fp8_e4m3, int8");
    CHECK(message_of(list_of("\"kv_dtype\": \"fp8_e4m2\"")) ==
          "line 4: kv_dtype is 'fp8_e4m2' (did you mean 'fp8_e4m3'?): accepted are fp16 and bf16 (the same as q_dtype), fp8_e4m3, "
          "int8");
    // A relation between fields is reported where the field that breaks it is.
    CHECK(message_of(list_of("\"spec_dec\": \"tree\",\n\"sliding_window\": 128")) ==
          "line 5: sliding_window is 128: accepted is 0 with spec_dec tree");
    // A default that breaks a rule has no line of its own: the shape's is given.
    CHECK(message_of("{\"version\": 1, \"shapes\": [\n{\"q_dtype\": \"bf16\", \"num_q_heads\": 8, \"num_kv_heads\": 1, \"mla\": "
                     "true, \"head_dim\": 576}]}") ==
          "line 2: qk_scale is 0: accepted are values > 0 with mla, which has no default");
}

TEST_CASE("a missing required key is named", "[params][shape_list]") {
    for (Field const& field : params_fields()) {
        if (!field.required) continue;
        std::string text = "{\"version\": 1, \"shapes\": [\n{\"tp\": 2";
        for (auto const& [key, value] :
             {std::pair{"q_dtype", "\"bf16\""}, {"num_q_heads", "64"}, {"num_kv_heads", "8"}, {"head_dim", "128"}})
            if (std::string(field.name) != key) text += fmt::format(", \"{}\": {}", key, value);
        CHECK(message_of(text + "}]}") ==
              fmt::format("line 2: {} is missing: accepted {}", field.name, accepted_range(field.name)));
    }
}

TEST_CASE("an unknown key is refused with the nearest one", "[params][shape_list]") {
    CHECK(contains(message_of(list_of("\"page_sise\": 16")),
                   "line 4: unknown key 'page_sise' (did you mean 'page_size'?): accepted are name, tp, q_dtype"));
    CHECK(contains(message_of(list_of("", "\"headdim\": 16")), "line 1: unknown key 'headdim' (did you mean 'head_dim'?)"));
    CHECK(contains(message_of(list_of("\"struct_size\": 4")), "line 4: unknown key 'struct_size'"));
    CHECK(contains(message_of(R"({"version": 1, "shape": []})"),
                   "line 1: unknown key 'shape' (did you mean 'shapes'?): accepted are version, defaults, shapes"));
}

TEST_CASE("a document of another form is refused", "[params][shape_list]") {
    struct Row {
        std::string text;
        char const* message;
    };
    for (Row const& row : {
             Row{"[]", "line 1: the shape list is an empty list: accepted is an object with version, defaults and shapes"},
             Row{"7", "line 1: the shape list is 7: accepted is an object with version, defaults and shapes"},
             Row{"{}", "line 1: version is missing: accepted is 1"},
             Row{R"({"version": 2, "shapes": []})", "line 1: version is 2: accepted is 1"},
             Row{R"({"version": "1", "shapes": []})", "line 1: version is '1': accepted is 1"},
             Row{R"({"version": 1})", "line 1: shapes is missing: accepted is a list of objects"},
             Row{R"({"version": 1, "shapes": []})", "line 1: shapes is an empty list: accepted is a list of 1 or more objects"},
             Row{R"({"version": 1, "shapes": {}})", "line 1: shapes is an object: accepted is a list of 1 or more objects"},
             Row{R"({"version": 1, "shapes": [7]})", "line 1: an entry of shapes is 7: accepted is an object"},
             Row{R"({"version": 1, "defaults": [], "shapes": [{}]})",
                 "line 1: defaults is an empty list: accepted is an object with the keys of a shape"},
         }) {
        CAPTURE(row.text);
        CHECK(message_of(row.text) == row.message);
    }
    CHECK(contains(message_of(""), "line 1: the shape list is empty"));
    CHECK(contains(message_of(list_of("").substr(0, 40)), "the shape list is not JSON"));
    CHECK(contains(message_of(std::string(100'000, '[')), "nested more than 64 levels"));
    CHECK(contains(message_of(std::string((16u << 20) + 1, ' ')),
                   "the shape list has 16777217 bytes: accepted are at most 16777216"));
}

TEST_CASE("a list never makes more than 100 000 entries", "[params][shape_list]") {
    auto const numbers = [](int count) {
        std::string text;
        for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + std::to_string(i + 1);
        return "[" + text + "]";
    };
    auto const exact = parse_shape_list(list_of("\"sliding_window\": " + numbers(1000) + ", \"sink_tokens\": " + numbers(100)));
    REQUIRE(exact.ok());
    CHECK(exact->size() == 100'000);
    CHECK(message_of(list_of("\"sliding_window\": " + numbers(1000) + ", \"sink_tokens\": " + numbers(101))) ==
          "line 2: shapes make more than 100000 entries: accepted are 1..100000");
    std::string every_key;
    for (Field const& field : params_fields())  // a product beyond 64 bits
        if (field.names.empty() && !field.required)
            every_key += (every_key.empty() ? "\"" : ",\"") + std::string(field.name) + "\":" + numbers(30);
    CHECK(message_of(list_of(every_key)) == "line 2: shapes make more than 100000 entries: accepted are 1..100000");
}

TEST_CASE("a single shape takes the same keys, without lists", "[params][shape_list]") {
    auto const shape = parse_shape("{" + std::string(kBase) + R"(, "name": "one", "tp": 2, "page_size": 16})");
    REQUIRE(shape.ok());
    CHECK(shape->name == "one");
    CHECK(shape->params.num_q_heads == 32);
    CHECK(shape->params.page_size == 16);

    struct Row {
        std::string text;
        std::string message;
    };
    std::string const base = "{" + std::string(kBase) + ",\n";
    for (Row const& row : {
             Row{base + "\"page_size\": [16]}", "line 2: page_size is a list: accepted is a single value"},
             Row{base + "\"page_size\": 24}", "line 2: page_size is 24: accepted are 0, 8, 16, 32, 64, 128, 256, 512, 1024"},
             Row{base + "\"name\": 1}", "line 2: name is 1: accepted are strings"},
             Row{base + "\"tp\": 0}", "line 2: tp is 0: accepted are 1..4096"},
             Row{base + "\"tp\": {}}", "line 2: tp is an object: accepted are 1..4096"},
             Row{"[]", "line 1: the shape is an empty list: accepted is an object"},
             Row{"{}", "line 1: q_dtype is missing: accepted are fp16, bf16"},
         }) {
        CAPTURE(row.text);
        auto const bad = parse_shape(row.text);
        REQUIRE_FALSE(bad.ok());
        CHECK(bad.status().message() == row.message);
    }
    CHECK(contains(parse_shape("{\"mls\": 1}").status().message(), "unknown key 'mls' (did you mean 'mla'?)"));
}

TEST_CASE("a tp that does not divide is an error of the shape, wherever the numbers are written", "[params]") {
    for (char const* defaults : {R"("tp": 3)", R"("tp": 3, "num_q_heads": 64, "num_kv_heads": 8)"}) {
        std::string const text = std::string("{\"version\": 1, \"defaults\": {") + defaults +
                                 ", \"q_dtype\": \"bf16\", \"head_dim\": 64},\n\"shapes\": [\n" +
                                 R"({"name": "big", "num_q_heads": 64, "num_kv_heads": 8}]})";
        CHECK(message_of(text).starts_with("line 3: shape 'big': tp is 3: accepted are divisors of num_q_heads (64)"));
    }
}
