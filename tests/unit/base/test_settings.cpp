#include "base/settings.h"

#include <cstdlib>

#include "base/log.h"
#include "catch.h"

using namespace xqajit;

namespace {

Result<Settings> parse(std::vector<std::string> const& environment) { return Settings::parse(environment); }

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// Legal and illegal values of every setting. A setting that is missing here fails the test that walks the table.
struct Values {
    SettingId id;
    std::vector<std::string> legal;
    std::vector<std::string> illegal;
};

std::vector<Values> const kValues{
    {SettingId::kCacheDir, {"/var/cache/xqajit", "relative", "with space"}, {}},
    {SettingId::kCacheMaxSize,
     {"1", "1048576", "512M", "2G", "1T", "64k"},
     {"0", "0G", "-1", "2GB", "1.5G", "G", "02G", " 2G", "99999999T"}},
    {SettingId::kCacheKeyFile, {"/etc/xqajit/key"}, {}},
    {SettingId::kCacheLayers, {"/usr/share/xqajit/cache", "/a:/b.xqb", ":/a:"}, {}},  // what it names is judged when it is opened
    {SettingId::kCacheCopyHits, {"0", "1"}, {"2", "true", "yes"}},
    {SettingId::kRemoteCache,
     {"http://host", "https://ann:pass@host:8443/cache/"},
     {"host", "ftp://host", "file:///tmp", "http://", "http://host:0", "http://host/a b"}},
    {SettingId::kRemoteCacheWrite, {"0", "1"}, {"2", "rw"}},
    {SettingId::kRemoteTimeout, {"10", "250", "60000"}, {"0", "9", "60001", "1s", "-1"}},
    {SettingId::kRemoteAllowUnsigned, {"0", "1"}, {"2", "yes"}},
    {SettingId::kNvrtcPath, {"/opt/libnvrtc.so.12"}, {}},
    {SettingId::kArch, {"sm_90a", "9.0a"}, {}},  // the architecture table judges it
    {SettingId::kForceKernel,
     {"hmma", "gmma", "mla", "mmha", "hmma,mmha", " hmma , mmha ", "hmma,,mmha"},
     {"qgmma", "hmma,xqa", ",", " ", "HMMA", "hmma|mmha", "hmma;mmha"}},
    {SettingId::kNumeric, {"exact16", "fp8"}, {"fp16", "default", "Fp8", "exact16|fp8", " fp8"}},
    {SettingId::kDivision, {"static", "balanced", "invariant"}, {"default", "dynamic", "statics"}},
    {SettingId::kNbSubSeq, {"0", "1", "6000"}, {"6001", "-1", "+1", "1.5", "0x10", " 1", "1 ", "one", "99999999999999999999999"}},
    {SettingId::kPdl, {"on", "off"}, {"1", "0", "yes", "ON"}},
    {SettingId::kPerfGate, {"off", "reference"}, {"on", "1"}},
    {SettingId::kOnMiss, {"compile", "fallback", "refuse"}, {"wait", "default", "error"}},
    {SettingId::kCompile, {"in_process", "worker"}, {"inprocess", "fork"}},
    {SettingId::kCompileTimeout, {"1", "120", "3600"}, {"0", "3601", "60s", "-5", "1e2"}},
    {SettingId::kLockTimeout, {"0", "120", "3600"}, {"-1", "3601", "2m", "never"}},
    {SettingId::kWorker, {"/usr/libexec/xqajit/xqajit-worker"}, {}},
    {SettingId::kCompilerMatch, {"exact", "any"}, {"none", "latest"}},
    {SettingId::kRecordShapes, {"shapes.json"}, {}},
    {SettingId::kDebug, {"0", "1"}, {"2", "true", "on", "01"}},
    {SettingId::kLogLevel, {"trace", "debug", "info", "warning", "error", "off"}, {"warn", "3", "INFO", "verbose"}},
};

}  // namespace

TEST_CASE("the table has one well-formed row a setting, in order", "[base][settings]") {
    auto const table = settings_table();
    REQUIRE(table.size() == static_cast<std::size_t>(SettingId::kCount));
    for (std::size_t i = 0; i < table.size(); ++i) {
        CAPTURE(table[i].name);
        CHECK(table[i].id == static_cast<SettingId>(i));
        CHECK(std::string_view(table[i].name).starts_with("XQAJIT_"));
        CHECK(std::string_view(table[i].accepted) != "");
        CHECK(std::string_view(table[i].help).ends_with("."));
    }
}

TEST_CASE("without a variable every setting has its default, which is legal", "[base][settings]") {
    auto const settings = parse({});
    REQUIRE(settings.ok());
    for (Setting const& setting : settings_table()) {
        CAPTURE(setting.name);
        CHECK(settings->text(setting.id) == setting.default_value);
        CHECK_FALSE(settings->get(setting.id).is_set);
        CHECK(settings->get(setting.id).origin == "default");
        CHECK(parse({std::string(setting.name) + "=" + setting.default_value}).ok());
    }
    CHECK(settings->integer(SettingId::kCompileTimeout) == 120);
    CHECK(settings->integer(SettingId::kNbSubSeq) == 0);
    CHECK(settings->size(SettingId::kCacheMaxSize) == 0);
    CHECK(parse({"XQAJIT_CACHE_MAX_SIZE=2G"})->size(SettingId::kCacheMaxSize) == 2ull << 30);
    CHECK_FALSE(settings->flag(SettingId::kDebug));
    CHECK(settings->warnings().empty());
}

TEST_CASE("every setting takes its legal values and refuses others by name, value and range", "[base][settings][A07]") {
    REQUIRE(kValues.size() == settings_table().size());
    for (Values const& values : kValues) {
        Setting const& setting = settings_table()[static_cast<std::size_t>(values.id)];
        REQUIRE(setting.id == values.id);
        for (std::string const& value : values.legal) {
            CAPTURE(setting.name, value);
            auto const settings = parse({std::string(setting.name) + "=" + value});
            REQUIRE(settings.ok());
            CHECK(settings->text(values.id) == value);
            CHECK(settings->get(values.id).is_set);
            CHECK(settings->get(values.id).origin == "environment");
        }
        for (std::string const& value : values.illegal) {
            CAPTURE(setting.name, value);
            auto const settings = parse({std::string(setting.name) + "=" + value});
            REQUIRE_FALSE(settings.ok());
            CHECK(settings.status().code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(contains(settings.status().message(), setting.name));
            CHECK(contains(settings.status().message(), "'" + value + "'"));
            CHECK(contains(settings.status().message(), setting.accepted));
        }
    }
}

TEST_CASE("an empty value is the same as unset", "[base][settings][J21]") {
    for (Setting const& setting : settings_table()) {
        CAPTURE(setting.name);
        auto const settings = parse({std::string(setting.name) + "="});
        REQUIRE(settings.ok());
        CHECK(settings->text(setting.id) == setting.default_value);
        CHECK_FALSE(settings->get(setting.id).is_set);
    }
}

TEST_CASE("an unknown variable is a warning that names the nearest setting", "[base][settings][A07]") {
    struct Row {
        char const* entry;
        char const* name;
        char const* meant;
    };
    for (Row const row : {Row{"XQAJIT_FORCE_KERNELS=hmma", "XQAJIT_FORCE_KERNELS", "XQAJIT_FORCE_KERNEL"},
                          Row{"XQAJIT_CACHEDIR=/x", "XQAJIT_CACHEDIR", "XQAJIT_CACHE_DIR"},
                          Row{"XQAJIT_arch=sm_80", "XQAJIT_arch", "XQAJIT_ARCH"}}) {
        CAPTURE(row.entry);
        auto const settings = parse({row.entry});
        REQUIRE(settings.ok());
        REQUIRE(settings->warnings().size() == 1);
        CHECK(contains(settings->warnings()[0], row.name));
        CHECK(contains(settings->warnings()[0], std::string("'") + row.meant + "'"));
    }
    for (char const* entry : {"XQAJIT_SOMETHING_ENTIRELY_DIFFERENT=1", "XQAJIT_FOO=1", "XQAJIT_=1"}) {
        CAPTURE(entry);
        auto const far_off = parse({entry});
        REQUIRE(far_off.ok());
        REQUIRE(far_off->warnings().size() == 1);
        CHECK_FALSE(contains(far_off->warnings()[0], "did you mean"));
    }
}

TEST_CASE("variables of others are not looked at", "[base][settings]") {
    auto const settings = parse({"PATH=/bin", "XQA_DEBUG=7", "MY_XQAJIT_DEBUG=7", "XQAJIT_DEBUG", "", "=", "xqajit_debug=7"});
    REQUIRE(settings.ok());
    CHECK(settings->warnings().empty());
    CHECK_FALSE(settings->flag(SettingId::kDebug));
}

TEST_CASE("of two entries for one variable the first counts", "[base][settings]") {
    auto const settings = parse({"XQAJIT_DEBUG=1", "XQAJIT_DEBUG=0"});
    REQUIRE(settings.ok());
    CHECK(settings->flag(SettingId::kDebug));
}

TEST_CASE("a list keeps its order, trimmed, without empty parts", "[base][settings]") {
    auto const settings = parse({"XQAJIT_FORCE_KERNEL= gmma,,hmma , mmha,"});
    REQUIRE(settings.ok());
    CHECK(settings->list(SettingId::kForceKernel) == std::vector<std::string>{"gmma", "hmma", "mmha"});
}

TEST_CASE("the settings come from the process environment", "[base][settings]") {
    ::setenv("XQAJIT_NB_SUB_SEQ", "17", 1);
    auto const set = Settings::from_environment();
    ::unsetenv("XQAJIT_NB_SUB_SEQ");
    auto const unset = Settings::from_environment();
    REQUIRE(set.ok());
    REQUIRE(unset.ok());
    CHECK(set->integer(SettingId::kNbSubSeq) == 17);
    CHECK(unset->integer(SettingId::kNbSubSeq) == 0);
}

TEST_CASE("every accepted log level is a level of the log", "[base][settings][log]") {
    for (std::string const& level : kValues.back().legal) CHECK(log::parse_level(level).has_value());
}

TEST_CASE("the README's table has one row a setting", "[base][settings]") {
    std::string const table = settings_markdown();
    for (Setting const& setting : settings_table()) {
        CAPTURE(setting.name);
        CHECK(contains(table, "\n| `" + std::string(setting.name) + "` | " + setting.type + " | "));
        CHECK(contains(table, setting.help));
    }
    std::size_t lines = 0;
    for (char const c : table) lines += c == '\n' ? 1 : 0;
    CHECK(lines == settings_table().size() + 2);
}
