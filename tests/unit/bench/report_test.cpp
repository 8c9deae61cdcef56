#include <algorithm>

#include "catch.h"
#include "gpu/bench_report.h"

using namespace xqajit;
using namespace xqajit::cli;

namespace {

BenchRow measured(std::string name, Point point, double us, double read_us) {
    BenchRow row;
    row.name = std::move(name);
    row.point = std::move(point);
    row.params.head_dim = 128;
    row.params.num_q_heads = 64;
    row.params.num_kv_heads = 8;
    row.params.page_size = 32;
    row.kv_dtype = "fp8_e4m3";
    row.family = "mmha";
    row.division = "static";
    row.nb_sub_seq = 4;
    row.grid_x = 256;
    row.kv_bytes = 1000000;
    row.us = us;
    row.us_min = us - 1;
    row.read_us = read_us;
    row.pdl = true;
    return row;
}

std::vector<BenchRow> some_rows() {
    std::vector<BenchRow> rows = {measured("a, \"b\"", {{{8, 64}}}, 10, 5), measured("a, \"b\"", {{{1, 9}, {2, 3}}}, 20, 5),
                                  measured("c", {{{8, 64}}}, 30, 5), measured("c", {{{4, 1}}}, 40, 5)};
    rows[0].check = {true, 1.5e-3, 16, 64};
    rows[1].vs_equal = 2;
    rows[1].unchecked = "too long";
    rows[2].outcome = BenchRow::Outcome::kSkipped;
    rows[2].reason = "no room";
    rows[3].outcome = BenchRow::Outcome::kFailed;
    rows[3].reason = "it broke\x1b[2J";
    return rows;
}

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

std::size_t count(std::string const& text, std::string const& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
}

// One record a line, its cells unquoted.
std::vector<std::vector<std::string>> records(std::string const& csv) {
    std::vector<std::vector<std::string>> all(1, {""});
    bool quoted = false;
    for (char const c : csv) {
        if (c == '"')
            quoted = !quoted;
        else if (c == ',' && !quoted)
            all.back().push_back("");
        else if (c == '\n' && !quoted)
            all.push_back({""});
        else
            all.back().back() += c;
    }
    all.pop_back();
    return all;
}

}  // namespace

TEST_CASE("the table has what was measured, and a line for what was not", "[bench]") {
    std::string const text = bench_table(some_rows());
    INFO(text);
    for (char const* part : {"FRACTION", "VS EQUAL", "10.00", "9.00", "0.500", "1.5e-03", "1x9+2x3", "2.00",
                             "skipped: c 8x64: no room\n", "failed: c 4x1: it broke\\x1b[2J\n",
                             "not checked: a, \"b\" 1x9+2x3: too long\n", "4 points: 2 measured, 1 skipped, 1 failed; 1 checked\n"})
        CHECK(contains(text, part));
    CHECK_FALSE(contains(text, "30.00"));
    CHECK_FALSE(contains(bench_table({measured("a", {{{1, 1}}}, 1, 1)}), "VS EQUAL"));
    CHECK(bench_table({}) == "0 points: 0 measured, 0 skipped, 0 failed; 0 checked\n");
}

TEST_CASE("the table has the tiles that were skipped where a shape skips any", "[bench]") {
    std::vector<BenchRow> rows = some_rows();
    CHECK_FALSE(contains(bench_table(rows), "TILES SKIPPED"));
    CHECK(bench_json(rows)["rows"][0]["skipped_tiles_fraction"].is_null());
    rows[0].skipped_tiles_fraction = 0.9375;
    CHECK(contains(bench_table(rows), "TILES SKIPPED"));
    CHECK(contains(bench_table(rows), "0.938"));
    CHECK(bench_json(rows)["rows"][0]["skipped_tiles_fraction"] == 0.9375);
}

TEST_CASE("the document has every row, and null for what is unknown", "[bench]") {
    auto const json = bench_json(some_rows());
    CHECK(json["summary"].dump() == R"({"points":4,"measured":2,"skipped":1,"failed":1,"checked":1})");
    auto const& rows = json["rows"];
    REQUIRE(rows.size() == 4);
    CHECK(rows[0]["us"] == 10);
    CHECK(rows[0]["gb_per_s"] == 100);
    CHECK(rows[0]["read_us"] == 5);
    CHECK(rows[0]["fraction_of_read"] == 0.5);
    CHECK(rows[0]["lengths"] == "64");
    CHECK(rows[0]["pdl"] == true);
    CHECK(rows[0]["check_ok"] == true);
    CHECK(rows[0]["check_rel_l2"] == 1.5e-3);
    CHECK(rows[0]["vs_equal_lengths"].is_null());
    CHECK(rows[1]["vs_equal_lengths"] == 2);
    CHECK(rows[1]["check_ok"].is_null());
    CHECK(rows[1]["check_reason"] == "too long");
    CHECK(rows[2]["outcome"] == "skipped");
    CHECK(rows[2]["us"].is_null());
    CHECK(rows[2]["reason"] == "no room");
    CHECK(rows[3]["outcome"] == "failed");
}

TEST_CASE("the CSV has the columns of the document, each record as many cells", "[bench]") {
    auto const json = bench_json(some_rows());
    auto const csv = records(bench_csv(some_rows()));
    REQUIRE(csv.size() == 5);
    for (std::size_t n = 0; n < 4; ++n) {
        REQUIRE(csv[n + 1].size() == csv[0].size());
        std::size_t column = 0;
        for (auto const& [key, value] : json["rows"][n].items()) {
            INFO(key << " of row " << n);
            CHECK(csv[0][column] == key);
            std::string expected = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
            std::erase(expected, '"');  // the reader here drops the doubled ones
            CHECK(csv[n + 1][column++] == expected);
        }
    }
    CHECK(contains(bench_csv(some_rows()), R"("a, ""b""",measured,)"));
    CHECK(records(bench_csv({})).size() == 1);
}

TEST_CASE("the plot has a line for each shape and family that was measured", "[bench]") {
    std::vector<BenchRow> rows = some_rows();
    rows.push_back(measured("<d> & e", {{{1, 1}}}, 10, 20));  // faster than the roofline: the axis grows
    rows.back().kv_bytes = 1ull << 40;
    std::string const svg = bench_svg(rows);
    CHECK(count(svg, "<circle") == 3);
    CHECK(count(svg, "fill=\"none\"") == 2);
    CHECK(contains(svg, "a, \"b\", mmha"));
    CHECK(contains(svg, "&lt;d> &amp; e, mmha"));
    CHECK(contains(svg, ">2.0</text>"));
    CHECK_FALSE(contains(svg, "nan"));
    CHECK_FALSE(contains(svg, "inf"));
    CHECK_FALSE(contains(svg, "cy=\"-"));
    CHECK(bench_svg({}).ends_with("</svg>\n"));
}
