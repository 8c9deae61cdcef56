#include "catch.h"
#include "shapes.h"

using namespace xqajit;

TEST_CASE("an architecture's name in any accepted spelling gives its exact target", "[select][J21]") {
    struct Case {
        char const* name;
        char const* target;
        std::uint32_t sm;
    };
    auto const c = GENERATE(values<Case>({
        {"8.0", "sm_80", 80},
        {"80", "sm_80", 80},
        {"sm_80", "sm_80", 80},
        {"sm_86", "sm_86", 86},
        {"8.7", "sm_87", 87},
        {"sm_89", "sm_89", 89},
        {"9.0a", "sm_90a", 90},
        {"9.0", "sm_90a", 90},
        {"90", "sm_90a", 90},
        {"90a", "sm_90a", 90},
        {"sm_90", "sm_90a", 90},
        {"sm_90a", "sm_90a", 90},
        {"10.0", "sm_100a", 100},
        {"sm_100", "sm_100a", 100},
        {"sm_100f", "sm_100f", 100},
        {"10.3a", "sm_103a", 103},
        {"sm_110", "sm_110a", 110},
        {"12.0", "sm_120f", 120},
        {"sm_120", "sm_120f", 120},
        {"sm_120a", "sm_120a", 120},
        {"12.1", "sm_120f", 121},
        {"sm_121", "sm_120f", 121},
        {"121f", "sm_121f", 121},
        {"compute_80", "compute_80", 80},
        {"compute_90", "compute_90", 90},
        {"compute_90a", "compute_90a", 90},
        {"compute_120f", "compute_120f", 120},
    }));
    INFO(c.name);
    Result<ArchFacts> const facts = arch_from_name(c.name);
    REQUIRE(facts.ok());
    CHECK(facts->target == c.target);
    CHECK(facts->sm == c.sm);
    CHECK(facts->is_ptx() == (std::string_view(c.target).substr(0, 8) == "compute_"));
}

TEST_CASE("a name that is no architecture is refused with the accepted names", "[select][J21]") {
    auto const name = GENERATE(values<std::string>({"",           "7.0",
                                                    "sm_70",      "70",
                                                    "garbage",    "sm_",
                                                    "compute_",   "sm",
                                                    "90b",        "sm_90f",
                                                    "sm_80a",     "9.0aa",
                                                    "9.00",       "9.",
                                                    ".9",         "sm_9.0",
                                                    "090",        "+90",
                                                    "-90",        " 90",
                                                    "90 ",        "SM_90A",
                                                    "7.0;9.0",    "sm_80,sm_90a",
                                                    "4294967376", "99999999999999999999"}));
    INFO(name);
    Result<ArchFacts> const facts = arch_from_name(name);
    REQUIRE_FALSE(facts.ok());
    CHECK(facts.status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(facts.status().message().find("\"" + name + "\"") != std::string::npos);
    for (char const* const accepted : {"sm_80", "sm_90a", "sm_121", "9.0a", "compute_80"}) {
        CHECK(facts.status().message().find(accepted) != std::string::npos);
    }
}

TEST_CASE("a device's capability gives its own arch's facts", "[select][J19]") {
    struct Case {
        std::uint32_t major, minor;
        char const* target;
        std::uint32_t smem_optin;
        bool fp8, tma, wgmma;
    };
    auto const c = GENERATE(values<Case>({
        {8, 0, "sm_80", 163 * 1024, false, false, false},
        {8, 6, "sm_86", 99 * 1024, false, false, false},
        {8, 7, "sm_87", 163 * 1024, false, false, false},
        {8, 9, "sm_89", 99 * 1024, true, false, false},
        {9, 0, "sm_90a", 227 * 1024, true, true, true},
        {10, 0, "sm_100a", 227 * 1024, true, true, false},
        {10, 3, "sm_103a", 227 * 1024, true, true, false},
        {11, 0, "sm_110a", 227 * 1024, true, true, false},
        {12, 0, "sm_120f", 99 * 1024, true, true, false},
        {12, 1, "sm_120f", 99 * 1024, true, true, false},
    }));
    INFO(c.major << "." << c.minor);
    Result<ArchFacts> const facts = arch_from_capability(c.major, c.minor);
    REQUIRE(facts.ok());
    CHECK(facts->sm == c.major * 10 + c.minor);
    CHECK(facts->target == c.target);
    CHECK(facts->smem_optin == c.smem_optin);
    CHECK(facts->native_fp8_convert == c.fp8);
    CHECK(facts->has_tma == c.tma);
    CHECK(facts->has_pdl == c.tma);
    CHECK(facts->has_clusters == c.tma);
    CHECK(facts->has_wgmma == c.wgmma);
    CHECK(facts->sm_count > 0);
    CHECK(runs_on(*facts, c.major * 10 + c.minor));
}

TEST_CASE("a capability that is not known is refused with the known ones", "[select][J17]") {
    for (auto const& [major, minor] : {std::pair{7u, 0u}, {7u, 5u}, {8u, 1u}, {9u, 1u}, {13u, 0u}, {0u, 80u}, {0u, 0u}}) {
        Result<ArchFacts> const facts = arch_from_capability(major, minor);
        REQUIRE_FALSE(facts.ok());
        CHECK(facts.status().code() == XQAJIT_UNSUPPORTED);
        CHECK(facts.status().message().find(std::to_string(major) + "." + std::to_string(minor)) != std::string::npos);
        CHECK(facts.status().message().find("8.0, 8.6") != std::string::npos);
    }
}

TEST_CASE("an image runs where its target says and nowhere else", "[select][J19][J21]") {
    struct Case {
        char const* target;
        std::vector<std::uint32_t> devices;
    };
    std::vector<std::uint32_t> const all = {80, 86, 87, 89, 90, 100, 103, 110, 120, 121};
    auto const c = GENERATE(values<Case>({
        {"sm_80", {80, 86, 89}},
        {"sm_86", {86, 89}},
        {"sm_87", {87}},
        {"sm_89", {89}},
        {"sm_90a", {90}},
        {"sm_100a", {100}},
        {"sm_100f", {100, 103}},
        {"sm_103a", {103}},
        {"sm_110a", {110}},
        {"sm_120f", {120, 121}},
        {"sm_121", {120, 121}},
        {"sm_121f", {121}},
        {"sm_120a", {120}},
        {"compute_80", {80, 86, 87, 89, 90, 100, 103, 110, 120, 121}},
        {"compute_89", {89, 90, 100, 103, 110, 120, 121}},
        {"compute_90", {90, 100, 103, 110, 120, 121}},
        {"compute_90a", {90}},
        {"compute_120f", {120, 121}},
    }));
    for (std::uint32_t const device : all) {
        INFO(c.target << " on " << device);
        bool const expected = std::find(c.devices.begin(), c.devices.end(), device) != c.devices.end();
        CHECK(runs_on(test::arch(c.target), device) == expected);
    }
    CHECK_FALSE(runs_on(test::arch(c.target), 75));
}

TEST_CASE("an image of no target runs nowhere", "[select]") { CHECK_FALSE(runs_on(ArchFacts(), 80)); }
