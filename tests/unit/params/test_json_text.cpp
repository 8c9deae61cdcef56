#include "params/json_text.h"

#include <string>
#include <vector>

#include "catch.h"
#include "unit/params/shapes.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {
constexpr JsonLimits kLimits{1000, 8, 100};
Result<JsonValue> parse(std::string const& text) { return parse_json(text, "the text", kLimits); }
}  // namespace

TEST_CASE("every value knows its line", "[params][json]") {
    auto const root = parse("\n{\n\"a\": 1\n,\n\"b\"\n:\n[\n2\n,\n-3.5\r\n,\n\"x\\n\"\n,true\n,null\n,[\n{\n}\n]]}\n");
    REQUIRE(root.ok());
    CHECK(root->line == 2);
    REQUIRE(root->members.size() == 2);
    CHECK(root->members[0].line == 3);
    CHECK(root->members[0].value.line == 3);
    CHECK(root->members[1].line == 5);
    JsonValue const& list = root->members[1].value;
    CHECK(list.line == 7);
    REQUIRE(list.items.size() == 6);
    std::vector<int> lines;
    for (JsonValue const& item : list.items) lines.push_back(item.line);
    CHECK(lines == std::vector<int>{8, 10, 12, 13, 14, 15});
    CHECK(list.items[5].items[0].line == 16);
}

TEST_CASE("values keep their kind and their spelling", "[params][json]") {
    auto const root = parse(R"([0, 18446744073709551615, -1, 1.50, 1e3, true, false, null, "te\u0078t", [], [1], {}])");
    REQUIRE(root.ok());
    std::vector<std::string> shown;
    for (JsonValue const& item : root->items) shown.push_back(item.shown());
    CHECK(shown == std::vector<std::string>{"0", "18446744073709551615", "-1", "1.50", "1e3", "true", "false", "null", "'text'",
                                            "an empty list", "a list", "an object"});
    CHECK(root->items[1].integer == 18446744073709551615ull);
    CHECK(root->items[2].number == -1);
    CHECK(root->items[3].number == 1.5);
    CHECK(root->items[5].integer == 1);
}

TEST_CASE("a long value is cut where an error shows it", "[params][json]") {
    auto const root = parse("\"" + std::string(200, 'x') + "\"");
    REQUIRE(root.ok());
    CHECK(root->shown() == "'" + std::string(60, 'x') + "...'");
}

TEST_CASE("text that is not JSON is refused with its line", "[params][json]") {
    struct Row {
        std::string text;
        char const* start;
    };
    for (Row const& row : {
             Row{"", "line 1: the text is empty"},
             Row{" \n\t\r\n", "line 1: the text is empty"},
             Row{"{", "line 1: the text is not JSON"},
             Row{"{\n\"a\":\n", "line 3: the text is not JSON"},
             Row{"{\n\"a\": [1,\n2,\n]}", "line 4: the text is not JSON"},
             Row{"{}\n}", "line 2: the text is not JSON"},
             Row{"hello", "line 1: the text is not JSON"},
             Row{"{\"a\": 1,\n 'b': 2}", "line 2: the text is not JSON"},
             Row{"[1e999]", "line 1: the text is not JSON"},
             Row{"[\"\xff\xfe\"]", "line 1: the text is not JSON"},
             Row{std::string("[\0]", 3), "line 1: the text is not JSON"},
             Row{"[NaN]", "line 1: the text is not JSON"},
             Row{"{\"a\": 1,\n\"a\": 2}", "line 2: key 'a' is given twice"},
         }) {
        CAPTURE(row.text);
        Status const status = parse(row.text).status();
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CAPTURE(status.message());
        CHECK(status.message().rfind(row.start, 0) == 0);
        CHECK(status.message().size() < 500);
    }
}

TEST_CASE("text beyond a limit is refused with the limit", "[params][json]") {
    auto const nested = [](int depth) {
        return std::string(static_cast<std::size_t>(depth), '[') + std::string(static_cast<std::size_t>(depth), ']');
    };
    CHECK(parse(nested(8)).ok());
    CHECK(parse(nested(9)).status().message() == "line 1: the text is nested more than 8 levels deep");
    CHECK(parse(std::string(900, '[')).status().message() == "line 1: the text is nested more than 8 levels deep");

    CHECK(parse("[1" + std::string(998, ' ')).status().message().rfind("line 1: the text is not JSON", 0) == 0);
    CHECK(parse("[1" + std::string(999, ' ')).status().message() == "line 1: the text has 1001 bytes: accepted are at most 1000");

    std::string many = "[0";
    for (int i = 1; i < 99; ++i) many += ",0";
    CHECK(parse(many + "]").ok());
    CHECK(parse(many + ",0]").status().message() == "line 1: the text has more than 100 values");
}
