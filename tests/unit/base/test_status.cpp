#include "base/status.h"

#include <memory>
#include <set>
#include <string>

#include "catch.h"

using namespace xqajit;

TEST_CASE("every status code has a name of its own", "[base][status]") {
    std::set<std::string> names;
    for (int code = XQAJIT_OK; code <= XQAJIT_INTERRUPTED; ++code) names.insert(status_name(static_cast<xqajit_status>(code)));
    CHECK(names.size() == XQAJIT_INTERRUPTED - XQAJIT_OK + 1);
    CHECK(names.count("unknown") == 0);
    CHECK(std::string(status_name(static_cast<xqajit_status>(99))) == "unknown");
}

TEST_CASE("a status prints its code and message", "[base][status]") {
    CHECK(Status().to_string() == "ok");
    CHECK(Status(XQAJIT_COMPILE_FAILED, "no such type", "log").to_string() == "compile_failed: no such type");
    CHECK(Status(XQAJIT_COMPILE_FAILED, "no such type", "log").detail() == "log");
}

TEST_CASE("a result holds a value or the status that says why not", "[base][status]") {
    Result<std::unique_ptr<int>> good(std::make_unique<int>(7));
    REQUIRE(good.ok());
    CHECK(good.status().ok());
    std::unique_ptr<int> const taken = std::move(good).value();
    CHECK(*taken == 7);

    Result<std::unique_ptr<int>> const bad(unsupported("no kernel"));
    CHECK_FALSE(bad.ok());
    CHECK(bad.status().code() == XQAJIT_UNSUPPORTED);
    CHECK(bad.status().message() == "no kernel");
}

TEST_CASE("a failed step ends the function that checks it", "[base][status]") {
    auto const run = [](Status step) -> Status {
        XQAJIT_RETURN_IF_ERROR(step);
        return unavailable("reached the end");
    };
    CHECK(run(Status()).message() == "reached the end");
    CHECK(run(invalid_argument("stop")).message() == "stop");
}
