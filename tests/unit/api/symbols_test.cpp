#include <filesystem>
#include <sstream>

#include "base/subprocess.h"
#include "catch.h"

TEST_CASE("the library exports the C interface and nothing else", "[api]") {
    if (!std::filesystem::exists(NM)) skip_test("no nm");
    auto const listed = xqajit::run_process({NM, "-D", "--defined-only", "--format=posix", LIBRARY}, "", std::chrono::seconds(60));
    REQUIRE(listed.ok());
    REQUIRE(listed->code == 0);
    std::istringstream lines(listed->out);
    std::string name, rest;
    int functions = 0;
    while (lines >> name && std::getline(lines, rest)) {
        if (name.starts_with("XQAJIT_0")) continue;  // the version's own name
        INFO(name);
        CHECK(name.starts_with("xqajit_"));
        ++functions;
    }
    CHECK(functions > 20);
}
