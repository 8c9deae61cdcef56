#include "base/json.h"

#include <nlohmann/json.hpp>

#include "catch.h"

using namespace xqajit;
using Json = nlohmann::ordered_json;

TEST_CASE("a document becomes text whatever bytes its strings and names hold", "[base]") {
    for (std::string const& bytes :
         {std::string("\xff"), std::string("\xc3"), std::string("\xe2\x82"), std::string("\xc0\xaf"), std::string("\xed\xa0\x80"),
          std::string("\xf8\x88\x80\x80\x80"), std::string("\x80\xbf"), std::string("zero\0inside\xff", 12)}) {
        for (Json const& json :
             {Json(bytes), Json{{"text", "a" + bytes + "z"}}, Json{{"a" + bytes + "z", 1}}, Json::array({bytes, 1})}) {
            for (int const indent : {-1, 1}) {
                Json const read = Json::parse(to_text(json, indent), nullptr, /*allow_exceptions=*/false);
                CHECK(read.type() == json.type());
                CHECK(read.size() == json.size());
                CHECK(read.dump().find("\xef\xbf\xbd") != std::string::npos);
            }
        }
    }
}

TEST_CASE("text that is UTF-8 stays as it is", "[base]") {
    for (char const* text : {"", "plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "quote\" back\\slash \n"}) {
        CHECK(Json::parse(to_text(Json(text))) == text);
        CHECK(plain_text(Json(text)) == text);
    }
    CHECK(to_text({{"a", 1}, {"b", Json::array({1, 2})}}) == R"({"a":1,"b":[1,2]})");
    CHECK(to_text({{"a", 1}}, 1) == "{\n \"a\": 1\n}");
    CHECK(plain_text(Json::array({1})) == "[1]");
}
