#include "gpu/grid.h"

#include "catch.h"

using namespace xqajit;
using namespace xqajit::cli;

namespace {

std::string texts(std::vector<GridPoint> const& grid) {
    std::string text;
    for (GridPoint const& at : grid) text += (text.empty() ? "" : " ") + at.point.text() + (at.equal ? "=" + at.equal->text() : "");
    return text;
}

// The error's text, "" where there is none.
template <class Call> std::string error_of(Call const& call) {
    try {
        call();
    } catch (Error const& error) {
        CHECK(error.code() == XQAJIT_INVALID_ARGUMENT);
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("a grid is the product of batches and lengths, then the points, then the unequal ones with their equals", "[bench]") {
    struct Row {
        char const* batches;
        char const* lens;
        char const* grid;
        char const* unequal;
        char const* expected;
    };
    for (Row const& row : {
             Row{"1,8", "1024,8192", "", "", "1x1024 1x8192 8x1024 8x8192"},
             Row{"", "", "1x1024,8x8192", "", "1x1024 8x8192"},
             Row{"", "", "1x9+3x1", "", "1x9+3x1"},
             Row{"2", "7", "3x5,2x7,3x5", "", "2x7 3x5"},
             Row{"", "", "", "1x131072+31x512", "1x131072+31x512=32x4592 32x4592"},
             Row{"", "", "32x4592", "1x131072+31x512", "32x4592 1x131072+31x512=32x4592"},
             Row{"", "", "", "1x10+2x1", "1x10+2x1=3x4 3x4"},
             Row{"", "", "", "1x11+2x1", "1x11+2x1=1x5+2x4 1x5+2x4"},
             Row{"", "", "", "8x64", "8x64"},
             Row{"", "", "65536x16777216", "", "65536x16777216"},
         }) {
        BenchOptions options;
        options.batches = row.batches;
        options.seq_lens = row.lens;
        options.grid = row.grid;
        options.unequal = row.unequal;
        CHECK(texts(grid_of(options)) == row.expected);
    }
}

TEST_CASE("a point has the lengths that it names", "[bench]") {
    Point const point = parse_points("--grid", "1x9+3x2").front();
    CHECK(point.batch() == 4);
    CHECK(point.longest() == 9);
    CHECK(point.lens() == std::vector<std::int32_t>{9, 2, 2, 2});
    CHECK(point.lengths() == "1x9+3x2");
    CHECK(parse_points("--grid", "8x64").front().lengths() == "64");
}

TEST_CASE("equal lengths are as many requests and tokens", "[bench]") {
    for (char const* text : {"1x131072+31x512", "1x2+1x1", "7x3+2x1+5x100", "65535x1+1x16777216"}) {
        auto const tokens = [](Point const& point) {
            std::uint64_t sum = 0;
            for (Requests const& some : point.requests) sum += std::uint64_t{some.count} * some.len;
            return sum;
        };
        Point const point = parse_points("--unequal", text).front();
        Point const equal = point.in_equal_lengths();
        INFO(text << " " << equal.text());
        CHECK(equal.batch() == point.batch());
        CHECK(tokens(equal) == tokens(point));
        CHECK(equal.requests.front().len - equal.requests.back().len <= 1);
    }
}

TEST_CASE("a batch, a length or a point that is no such is refused with flag, value and accepted form", "[bench]") {
    struct Row {
        char const* flag;
        char const* text;
        char const* value;
    };
    for (Row const& row : {
             Row{"--batch", "1,x", "'x'"},
             Row{"--batch", "1,,2", "''"},
             Row{"--batch", "0", "'0'"},
             Row{"--batch", "65537", "'65537'"},
             Row{"--batch", "08", "'08'"},
             Row{"--seq-len", "", "''"},
             Row{"--seq-len", "-1", "'-1'"},
             Row{"--seq-len", "16777217", "'16777217'"},
             Row{"--grid", "1x1024,8", "'8'"},
             Row{"--grid", "x8", "'x8'"},
             Row{"--grid", "8x", "'8x'"},
             Row{"--grid", "8x1x2", "'8x1x2'"},
             Row{"--grid", "8X1", "'8X1'"},
             Row{"--grid", "1x8+", "'1x8+'"},
             Row{"--grid", "0x8", "'0x8'"},
             Row{"--grid", "65536x8+1x8", "'65536x8+1x8'"},
             Row{"--unequal", "1x1,1 x1", "'1 x1'"},
         }) {
        BenchOptions options;
        std::string const flag = row.flag;
        if (flag == "--batch") options.batches = row.text;
        if (flag == "--seq-len") options.seq_lens = row.text;
        if (flag == "--grid") options.grid = row.text;
        if (flag == "--unequal") options.unequal = row.text;
        std::string const text = error_of([&] { grid_of(options); });
        INFO(flag << " " << row.text << ": " << text);
        CHECK(text.starts_with(flag + ": " + row.value + " is not accepted: "));
        CHECK(text.find(flag == "--batch" ? "1..65536" : "1..16777216") != std::string::npos);
    }
    BenchOptions nothing;
    nothing.batches = nothing.seq_lens = "";
    CHECK_FALSE(error_of([&] { grid_of(nothing); }).empty());
}
