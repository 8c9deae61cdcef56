#include "base/quantity.h"

#include <string>

#include "catch.h"

using namespace xqajit;

TEST_CASE("a size is bytes, or a number of K, M, G or T", "[base][quantity]") {
    CHECK(parse_size("1") == 1);
    CHECK(parse_size("1000") == 1000);
    CHECK(parse_size("18446744073709551615") == ~0ull);
    CHECK(parse_size("3K") == 3ull << 10);
    CHECK(parse_size("512M") == 512ull << 20);
    CHECK(parse_size("2G") == 2ull << 30);
    CHECK(parse_size("2g") == 2ull << 30);
    CHECK(parse_size("16777215T") == 16777215ull << 40);
    for (char const* bad : {"",          "0",   "0M", "M",   "-1",   "+1",  "01",   "1.5G", "1 G",
                            " 1",        "1 ",  "1B", "2GB", "2GiB", "1KM", "0x10", "1e3",  "18446744073709551616",
                            "16777216T", "many"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_size(bad));
    }
    CHECK_FALSE(parse_size(std::string_view("1\0", 2)));
}

TEST_CASE("an age is a number of s, m, h or d, and has a unit", "[base][quantity]") {
    CHECK(parse_age("1s") == 1);
    CHECK(parse_age("90m") == 5400);
    CHECK(parse_age("12h") == 43200);
    CHECK(parse_age("30d") == 2592000);
    for (char const* bad : {"", "30", "d", "0d", "-1d", "1.5h", "1w", "1D", "1 d", "01d", "1dd", "9999999999999999999d"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_age(bad));
    }
}
