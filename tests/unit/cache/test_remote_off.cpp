// A build that was configured with -DXQAJIT_CURL=OFF.
#include "cache/remote.h"
#include "catch.h"
#include "unit/cache/fixture.h"

using namespace xqajit;
using namespace xqajit::cache;
using namespace xqajit::cache::test;

TEST_CASE("without libcurl's headers a remote is one clear message, and a miss", "[cache][remote]") {
    Warnings const warnings;
    RemoteOptions options;
    options.url = "http://ann:s3cret@host/c";
    options.writes = true;
    Remote remote(options);
    for (int i = 0; i < 3; ++i) {
        CHECK_FALSE(remote.load(sample_key(i)));
        remote.store(sample_entry(i));
    }
    remote.flush();
    REQUIRE(warnings.count() == 1);
    for (char const* part : {"http://***@host/c", "left out", "-DXQAJIT_CURL=OFF"})
        CHECK(warnings.texts()[0].find(part) != std::string::npos);
    RemoteState const state = remote.state();
    CHECK_FALSE(state.usable);
    CHECK_FALSE(state.reachable);
    CHECK(state.reason.find("-DXQAJIT_CURL=OFF") != std::string::npos);
    CHECK(remote.counts().errors == 0);
}
