#include "catch.h"
#include "shapes.h"

using namespace xqajit;

namespace {

Overrides parsed(std::vector<std::string> const& environment) {
    Result<Settings> const settings = Settings::parse(environment);
    REQUIRE(settings.ok());
    Result<Overrides> overrides = overrides_from(*settings);
    REQUIRE(overrides.ok());
    return *std::move(overrides);
}

}  // namespace

TEST_CASE("settings left at their default force nothing", "[select][A07]") {
    for (auto const& environment :
         std::vector<std::vector<std::string>>{{}, {"XQAJIT_FORCE_KERNEL=", "XQAJIT_PDL=", "XQAJIT_NUMERIC="}}) {
        Overrides const overrides = parsed(environment);
        CHECK(overrides.force_kernel.empty());
        CHECK(overrides.numeric == XQAJIT_NUMERIC_DEFAULT);
        CHECK(overrides.division == XQAJIT_DIVISION_DEFAULT);
        CHECK(overrides.nb_sub_seq == 0);
        CHECK_FALSE(overrides.pdl.has_value());
        CHECK_FALSE(overrides.perf_gate);
        CHECK(overrides.on_miss == XQAJIT_ON_MISS_DEFAULT);
    }
}

TEST_CASE("each setting acts", "[select][A07]") {
    using Families = std::vector<Family>;
    CHECK(parsed({"XQAJIT_FORCE_KERNEL=hmma"}).force_kernel == Families{Family::kHmma});
    CHECK(parsed({"XQAJIT_FORCE_KERNEL=mla, mmha ,hmma"}).force_kernel == Families{Family::kMla, Family::kMmha, Family::kHmma});
    CHECK(parsed({"XQAJIT_FORCE_KERNEL=gmma,mmha,gmma"}).force_kernel == Families{Family::kGmma, Family::kMmha});
    CHECK(parsed({"XQAJIT_NUMERIC=fp8"}).numeric == XQAJIT_NUMERIC_FP8);
    CHECK(parsed({"XQAJIT_NUMERIC=exact16"}).numeric == XQAJIT_NUMERIC_EXACT16);
    CHECK(parsed({"XQAJIT_DIVISION=static"}).division == XQAJIT_DIVISION_STATIC);
    CHECK(parsed({"XQAJIT_DIVISION=balanced"}).division == XQAJIT_DIVISION_BALANCED);
    CHECK(parsed({"XQAJIT_DIVISION=invariant"}).division == XQAJIT_DIVISION_INVARIANT);
    CHECK(parsed({"XQAJIT_NB_SUB_SEQ=6000"}).nb_sub_seq == 6000);
    CHECK(parsed({"XQAJIT_PDL=on"}).pdl == true);
    CHECK(parsed({"XQAJIT_PDL=off"}).pdl == false);
    CHECK(parsed({"XQAJIT_PERF_GATE=reference"}).perf_gate);
    CHECK_FALSE(parsed({"XQAJIT_PERF_GATE=off"}).perf_gate);
    CHECK(parsed({"XQAJIT_ON_MISS=compile"}).on_miss == XQAJIT_ON_MISS_COMPILE);
    CHECK(parsed({"XQAJIT_ON_MISS=fallback"}).on_miss == XQAJIT_ON_MISS_FALLBACK);
    CHECK(parsed({"XQAJIT_ON_MISS=refuse"}).on_miss == XQAJIT_ON_MISS_REFUSE);
}

TEST_CASE("every word that the settings table accepts has a meaning", "[select][A07]") {
    for (SettingId const id : {SettingId::kForceKernel, SettingId::kNumeric, SettingId::kDivision, SettingId::kPdl,
                               SettingId::kPerfGate, SettingId::kOnMiss}) {
        Setting const& setting = settings_table()[static_cast<std::size_t>(id)];
        std::string_view accepted = setting.accepted;
        while (!accepted.empty()) {
            std::string_view const word = accepted.substr(0, accepted.find('|'));
            accepted.remove_prefix(std::min(word.size() + 1, accepted.size()));
            INFO(setting.name << "=" << word);
            parsed({std::string(setting.name) + "=" + std::string(word)});
        }
    }
}

TEST_CASE("a kernel name that is none is refused with the accepted ones", "[select][A07]") {
    for (char const* const value : {"xqa", "hmma,foo", "HMMA", ",", "hmma;mmha"}) {
        std::vector<std::string> const environment = {std::string("XQAJIT_FORCE_KERNEL=") + value};
        Result<Settings> const settings = Settings::parse(environment);
        Status const status = settings.ok() ? overrides_from(*settings).status() : settings.status();
        INFO(value);
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(status.message().find("XQAJIT_FORCE_KERNEL") != std::string::npos);
        CHECK(status.message().find("hmma|gmma|mla|mmha") != std::string::npos);
    }
}
