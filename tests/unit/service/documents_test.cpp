#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

json explain(Service& service, XQAParams const& params, char const* arch = "sm_90a") {
    return json::parse(must(service.explain(params, arch, 4, 4096)));
}

}  // namespace

TEST_CASE("explain shows the chain from params to plan, and compiles nothing", "[service]") {
    World world;
    auto const service = world.service();
    json const document = explain(*service, plain_params());
    CHECK(document["schema"] == "xqajit.explain/1");
    for (char const* part :
         {"params", "arch", "overrides", "admissions", "selection", "spec", "macros", "key", "image", "launch", "perf_gate"})
        CHECK(document.contains(part));
    CHECK(document["admissions"].size() == std::size(kFamilies));
    for (json const& admission : document["admissions"]) {
        if (admission["admitted"] == true) continue;
        CHECK_FALSE(admission["rule"].get<std::string>().empty());
        CHECK_FALSE(admission["text"].get<std::string>().empty());
    }
    CHECK(document["selection"]["family"] == document["spec"]["family"]);
    CHECK(document["macros"]["XQAJIT_HEAD_DIM"] == "128");
    CHECK(document["key"]["body"].get<std::string>().size() == 32);
    CHECK(document["image"]["from"] == "compile");
    CHECK(document["launch"]["plan"]["nb_sub_seq"].get<int>() > 1);
    CHECK(document["launch"]["workspace_size"].get<int>() > 0);
    CHECK(world.compiles() == 0);
}

TEST_CASE("explain says where the image would come from", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(explain(*service, plain_params(), nullptr)["image"]["from"] == "memory");
    auto const fresh = world.service();
    CHECK(explain(*fresh, plain_params(), nullptr)["image"]["from"] == "disk");
    CHECK(explain(*fresh, plain_params(), "sm_80")["image"]["from"] == "compile");
    CHECK(fresh->stats().disk_hits == 0);  // looking is no hit
    world.set("XQAJIT_NVRTC_PATH", world.folder() + "/nowhere");
    auto const without = world.service();
    json const other = explain(*without, plain_params());
    CHECK(other["image"]["from"] == "disk");
    CHECK(other["image"].contains("note"));
    CHECK(other["key"]["compiler"].is_null());
    CHECK(contains(other["key"]["compiler_reason"].get<std::string>(), "nowhere"));
    CHECK(explain(*without, plain_params(), "sm_80")["image"]["from"] == "nowhere");
}

TEST_CASE("explain of a cached shape does not load the compiler", "[service][J14]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_COMPILE", "worker");
    require_ok(world.service()->prepare(plain_params()));
    CHECK(explain(*world.service(), plain_params(), nullptr)["image"]["from"] == "disk");
    CHECK_FALSE(world.nvrtc_is_loaded());
}

TEST_CASE("explain says that an image comes from nowhere, and why, where a prepare could not compile it", "[service][J17]") {
    struct Row {
        char const* variable;
        std::string value;
        char const* target;
        std::vector<std::string> reasons;
    };
    World world;
    world.write("libnvrtc.so.12", "no library");
    for (Row const& row :
         {Row{"XQAJIT_NVRTC_PATH", world.folder() + "/nowhere", "sm_90a", {"NVRTC not found", "/nowhere"}},
          Row{"XQAJIT_NVRTC_PATH", world.folder() + "/libnvrtc.so.12", "sm_90a", {"libnvrtc.so.12", "not an ELF file"}},
          Row{"FAKE_NVRTC_VERSION", "12.3", "sm_90a", {"12.3", "too old", "12.4"}},
          Row{"FAKE_NVRTC_VERSION", "12.8", "sm_120f", {"sm_120f", "12.8", "need 12.9"}},
          Row{"FAKE_NVRTC_ARCHS", "80,86", "sm_90a", {"sm_90a", "80, 86"}},
          Row{"XQAJIT_WORKER", "/no/worker", "sm_90a", {"XQAJIT_WORKER", "/no/worker"}}}) {
        INFO(row.variable << "=" << row.value);
        std::string const before = std::getenv(row.variable) != nullptr ? std::getenv(row.variable) : "";
        World::set("XQAJIT_COMPILE", "worker");
        World::set(row.variable, row.value);
        json const image = explain(*world.service(), plain_params(), row.target)["image"];
        CHECK(image["from"] == "nowhere");
        for (std::string const& reason : row.reasons) CHECK(contains(image["reason"].get<std::string>(), reason));
        world.cuda().set_devices(row.target == std::string("sm_120f") ? "12.0" : "9.0");
        world.enter(0);
        Status const prepared = world.service()->prepare(plain_params());  // which is what then happens
        CHECK_FALSE(prepared.ok());
        for (std::string const& reason : row.reasons) CHECK(contains(prepared.message(), reason));
        World::set(row.variable, before);
        CHECK(explain(*world.service(), plain_params(), row.target)["image"]["from"] == "compile");
    }
}

TEST_CASE("explain of a shape that no family serves has every family's rule and the refusal", "[service]") {
    World world;
    XQAParams params = plain_params();
    params.chunked_attention = 512;
    json const document = explain(*world.service(), params);
    CHECK(document["error"]["status"] == "unsupported");
    CHECK(document["admissions"].size() == std::size(kFamilies));
    CHECK_FALSE(document.contains("spec"));
    CHECK(world.service()->supports(params, "sm_90a").code() == XQAJIT_UNSUPPORTED);
    params.head_dim = 72;
    CHECK(world.service()->explain(params, "sm_90a", 1, 1).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("every setting acts visibly, is refused by name when illegal, and is listed with its origin", "[service][A07]") {
    struct Row {
        SettingId id;
        char const* legal;
        char const* illegal;                     // null: every text is legal
        std::function<json(json const&)> shown;  // in explain; null: in doctor alone
        json expected;
    };
    auto const at = [](char const* pointer) {
        return [pointer](json const& document) { return document.at(json::json_pointer(pointer)); };
    };
    World world;
    std::string const cache = world.folder() + "/elsewhere";
    Row const rows[] = {
        {SettingId::kCacheDir, cache.c_str(), nullptr, nullptr, nullptr},
        {SettingId::kCacheMaxSize, "2G", "2GB", nullptr, nullptr},
        {SettingId::kCacheKeyFile, "/no/key", nullptr, nullptr, nullptr},
        {SettingId::kCacheLayers, "/no/layer", nullptr, nullptr, nullptr},
        {SettingId::kCacheCopyHits, "1", "2", nullptr, nullptr},
        {SettingId::kRemoteCache, "http://127.0.0.1:1/cache", "ftp://127.0.0.1/", nullptr, nullptr},
        {SettingId::kRemoteCacheWrite, "1", "2", nullptr, nullptr},
        {SettingId::kRemoteTimeout, "100", "9", nullptr, nullptr},
        {SettingId::kRemoteAllowUnsigned, "1", "2", nullptr, nullptr},
        {SettingId::kNvrtcPath, "/nowhere", nullptr, at("/key/compiler"), nullptr},
        {SettingId::kArch, "sm_86", "sm_8G", at("/arch/target"), "sm_86"},
        {SettingId::kForceKernel, "mmha", "hmmma", at("/overrides/force_kernel"), json({"mmha"})},
        {SettingId::kNumeric, "exact16", "exact17", at("/overrides/numeric"), "exact16"},
        {SettingId::kDivision, "invariant", "fair", at("/launch/division"), "invariant"},
        {SettingId::kNbSubSeq, "9", "6001", at("/launch/plan/nb_sub_seq"), 9},
        {SettingId::kPdl, "on", "maybe", at("/overrides/pdl"), true},
        {SettingId::kPerfGate, "reference", "yes", at("/perf_gate/setting"), "reference"},
        {SettingId::kOnMiss, "refuse", "ignore", at("/launch/on_miss"), "refuse"},
        {SettingId::kCompile, "worker", "remote", nullptr, nullptr},
        {SettingId::kCompileTimeout, "7", "0", nullptr, nullptr},
        {SettingId::kLockTimeout, "7", "3601", nullptr, nullptr},
        {SettingId::kWorker, "/no/worker", nullptr, nullptr, nullptr},
        {SettingId::kCompilerMatch, "any", "some", nullptr, nullptr},
        {SettingId::kRecordShapes, "/tmp/xqajit-not-written.json", nullptr, nullptr, nullptr},
        {SettingId::kDebug, "1", "2", nullptr, nullptr},
        {SettingId::kLogLevel, "error", "loud", nullptr, nullptr},
    };
    REQUIRE(std::size(rows) == settings_table().size());
    for (Row const& row : rows) {
        Setting const& setting = settings_table()[static_cast<std::size_t>(row.id)];
        INFO(setting.name);
        std::string const before = std::getenv(setting.name) != nullptr ? std::getenv(setting.name) : "";
        World::set(setting.name, row.legal);
        auto const service = world.service();
        json const doctor = json::parse(must(service->doctor()));
        json const& listed = doctor["settings"][static_cast<std::size_t>(row.id)];
        CHECK(listed["name"] == setting.name);
        CHECK(listed["value"] == row.legal);
        CHECK(listed["origin"] == "environment");
        if (row.shown) CHECK(row.shown(explain(*service, plain_params(), nullptr)) == row.expected);
        if (row.illegal != nullptr) {
            World::set(setting.name, row.illegal);
            Status const refused = Service::create("").status();
            CHECK(refused.code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(contains(refused.message(), setting.name));
            CHECK(contains(refused.message(), row.illegal));
        }
        World::set(setting.name, before);
    }
    World::set("XQAJIT_FORCE_KERNAL", "mmha");
    auto const service = world.service();
    CHECK(contains(must(service->doctor()), "XQAJIT_FORCE_KERNEL"));  // the nearest name, in a warning
    CHECK(world.logged("XQAJIT_FORCE_KERNAL").size() == 1);
    World::set("XQAJIT_FORCE_KERNAL", "");
}

TEST_CASE("a forced family that can't serve the shape is an error, never another family", "[service][A07]") {
    World world;
    world.enter(0);
    for (auto const& [forced, params] : {std::pair{"mla", plain_params()}, {"gmma", mla_params()}, {"hmma", mla_params()}}) {
        world.set("XQAJIT_FORCE_KERNEL", forced);
        Status const status = world.service()->prepare(params);
        CHECK(status.code() == XQAJIT_UNSUPPORTED);
        CHECK(contains(status.message(), "XQAJIT_FORCE_KERNEL"));
        CHECK(contains(status.message(), std::string(forced) + "."));
    }
}

TEST_CASE("doctor reports compiler, worker, driver and GPUs, each with the reason where it is missing", "[service]") {
    World world;
    world.cuda().set_devices("9.0,7.5");
    std::filesystem::create_directory(world.cache_dir());
    std::filesystem::permissions(world.cache_dir(), std::filesystem::perms::owner_all);
    json const all = json::parse(must(world.service()->doctor()));
    CHECK(all["schema"] == "xqajit.doctor/1");
    CHECK(all["nvrtc"]["found"] == true);
    CHECK(all["nvrtc"]["version"] == "13.0");
    CHECK(all["nvrtc"]["archs"].size() > 1);
    CHECK(all["worker"]["found"] == true);
    CHECK(all["driver"]["gpus"][0]["target"] == "sm_90a");
    CHECK(all["driver"]["gpus"][1]["target"].is_null());  // too old, and said so
    CHECK(contains(all["driver"]["gpus"][1]["reason"].get<std::string>(), "7.5"));
    CHECK(all["cache"]["mode"] == "0700");

    world.set("XQAJIT_NVRTC_PATH", "/nowhere");
    world.set("XQAJIT_WORKER", "/no/worker");
    world.cuda().fail("cuDeviceGetCount", CUDA_ERROR_UNKNOWN);
    json const none = json::parse(must(world.service()->doctor()));
    CHECK(none["nvrtc"]["found"] == false);
    CHECK(contains(none["nvrtc"]["reason"].get<std::string>(), "/nowhere"));
    CHECK(contains(none["worker"]["reason"].get<std::string>(), "/no/worker"));
    CHECK(none["driver"]["found"] == false);
    CHECK(contains(none["driver"]["reason"].get<std::string>(), "cuDeviceGetCount: CUDA_ERROR_UNKNOWN"));
}

}  // namespace xqajit
