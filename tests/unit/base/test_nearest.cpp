#include "base/nearest.h"

#include <array>

#include "catch.h"

using namespace xqajit;

namespace {
constexpr std::array<std::string_view, 4> kWords{"page_size", "head_dim", "head_dim_v", "mla"};
}

TEST_CASE("a misspelt word finds the one that was meant", "[base][nearest]") {
    struct Row {
        char const* word;
        char const* meant;
    };
    for (Row const row : {Row{"page_sise", "page_size"}, Row{"pagesize", "page_size"}, Row{"headdim_v", "head_dim_v"},
                          Row{"headdim", "head_dim"}, Row{"mlq", "mla"}, Row{"MLA", "mla"}, Row{"lma", "mla"}, Row{"mal", "mla"},
                          Row{"paeg_szie", "page_size"}, Row{"page_size", "page_size"}}) {
        CAPTURE(row.word);
        CHECK(nearest(row.word, kWords) == row.meant);
    }
}

TEST_CASE("a word that is close to nothing finds nothing", "[base][nearest]") {
    for (std::string const& word :
         {std::string("zebra"), std::string(), std::string("x"), std::string("alm"), std::string(1 << 20, 'p')}) {
        CHECK(nearest(word, kWords).empty());
        CHECK(did_you_mean(word, kWords).empty());
    }
    CHECK(nearest("page_size", {}).empty());
}

TEST_CASE("the suggestion quotes the word", "[base][nearest]") { CHECK(did_you_mean("mls", kWords) == " (did you mean 'mla'?)"); }
