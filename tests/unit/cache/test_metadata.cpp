#include "cache/metadata.h"

#include "catch.h"

using xqajit::cache::compiler_rank;
using xqajit::cache::CompilerRank;

TEST_CASE("a compiler ranks by its version's numbers, then by the time of creation", "[cache]") {
    // Ascending.
    std::vector<std::string> const metadata = {
        R"({"created": "2024-01-01T00:00:00Z"})",
        R"({"nvrtc_version": "9.2", "created": "2030-01-01T00:00:00Z"})",
        R"({"nvrtc_version": "12.4"})",
        R"({"nvrtc_version": "12.4", "created": "2025-06-01T12:00:00Z"})",
        R"({"nvrtc_version": "12.4", "created": "2025-06-01T12:00:00.5Z"})",
        R"({"nvrtc_version": "12.4", "created": "2025-06-01T12:00:01Z"})",
        R"({"nvrtc_version": "12.4.1", "created": "2020-06-01T12:00:00Z"})",
        R"({"nvrtc_version": "12.10", "created": "2020-06-01T12:00:00Z"})",
        R"({"nvrtc_version": "13.0", "created": "2020-06-01T12:00:00Z", "more": [1, {"x": null}]})",
    };
    for (std::size_t i = 0; i + 1 < metadata.size(); ++i) {
        INFO(metadata[i] << " and " << metadata[i + 1]);
        CHECK(compiler_rank(metadata[i]) < compiler_rank(metadata[i + 1]));
    }
}

TEST_CASE("metadata that says nothing of the compiler ranks lowest", "[cache]") {
    for (std::string const& metadata :
         {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("\"13.0\""), std::string("{}"),
          std::string(100000, '['), std::string("{\"nvrtc_version\": \"\xff\"}"), std::string("{} {}"),
          std::string(R"({"nvrtc_version": 13.0, "created": 5})"), std::string(R"({"nvrtc_version": "new"})"),
          std::string(R"({"nvrtc_version": "13.0.1.2"})"), std::string(R"({"nvrtc_version": "13."})"),
          std::string(R"({"nvrtc_version": "-1.0"})"), std::string(R"({"nvrtc_version": "99999999999.0"})")}) {
        INFO(metadata.substr(0, 60));
        CHECK(compiler_rank(metadata) == CompilerRank{});
    }
}
