#include "base/split.h"

#include "catch.h"

using namespace xqajit;

TEST_CASE("a text is split at any of the separators, without blanks around parts and without empty parts", "[base]") {
    struct Row {
        std::string text, separators;
        std::vector<std::string> parts;
    };
    for (Row const& row : std::vector<Row>{
             {"", ",", {}},
             {" \t ", ",", {}},
             {",,,", ",", {}},
             {"a", ",", {"a"}},
             {"a,b", ",", {"a", "b"}},
             {" a b ,\tc\r", ",", {"a b", "c"}},
             {",a,,b,", ",", {"a", "b"}},
             {"a;b,c", ",;", {"a", "b", "c"}},
             {"a;b,c", ",", {"a;b", "c"}},
             {"/usr/lib:/opt/x y", ":", {"/usr/lib", "/opt/x y"}},
             {"one\r\n\ntwo\n", "\n", {"one", "two"}},
             {"\xff,\xc3\xa9", ",", {"\xff", "\xc3\xa9"}},
             {std::string("a\0b,c", 5), ",", {std::string("a\0b", 3), "c"}},
         }) {
        CAPTURE(row.text);
        CHECK(split(row.text, row.separators) == row.parts);
    }
}
