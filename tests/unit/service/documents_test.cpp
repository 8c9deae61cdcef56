#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
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

json capabilities(Service& service, char const* arch, Family wanted) {
    json const document = json::parse(must(service.capabilities(arch)));
    for (json const& family : document["families"])
        if (family["family"] == family_name(wanted)) return family;
    return nullptr;
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

TEST_CASE("capabilities are what the library then accepts", "[service][A01][A02][A09]") {
    World world;
    auto const service = world.service();
    json const mmha = capabilities(*service, "sm_90a", Family::kMmha);
    json const& decode = mmha["decode"];
    REQUIRE(mmha["built"] == true);
    auto const accepted = [&](char const* list, std::uint32_t last, auto const& set) {
        json expected = json::array();
        for (std::uint32_t value = 0; value <= last; ++value) {
            XQAParams params = plain_params();
            params.num_kv_heads = 1;
            params.num_q_heads = 8;
            set(params, value);
            if (service->supports(params, "sm_90a").ok()) expected.push_back(value);
        }
        CHECK(decode[list] == expected);
        CHECK(expected.size() > 1);
    };
    accepted("page_sizes", 2048, [](XQAParams& p, std::uint32_t v) { p.page_size = v; });
    accepted("head_dims", 640, [](XQAParams& p, std::uint32_t v) { p.head_dim = v; });
    CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128, 256, 512, 1024}));
    CHECK(decode["head_dims"].size() == 16);
    CHECK(decode["group_sizes"].size() == 128);
    CHECK(decode["beam_widths"].size() == 8);
    CHECK(decode["drafts"]["ragged"] == true);
    CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["tree"]["with_window"] == false);
    CHECK(decode["input_kv"] == false);
    CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
    CHECK(mmha["mla"]["divisions"] == decode["divisions"]);
    CHECK(mmha["mla"]["head_dims"] == json({576}));

    json const document = json::parse(must(service->capabilities("sm_90a")));
    CHECK(document["schema"] == "xqajit.capabilities/1");
    for (json const& family : document["families"]) {
        bool const built = family["family"] != "mla";
        CHECK(family["built"] == built);
        CHECK(family["decode"].is_null() == !built);
        CHECK(family["mla"].is_null() == (family["family"] != "mmha"));
    }
}

TEST_CASE("hmma's capabilities are the shapes that it serves by choice", "[service][A01][A02]") {
    World world;
    for (char const* arch : {"sm_80", "sm_90a", "sm_120f"}) {
        INFO(arch);
        json const decode = capabilities(*world.service(), arch, Family::kHmma)["decode"];
        CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128}));
        CHECK(decode["head_dims"].size() == 16);
        REQUIRE(decode["group_sizes"].size() == 127);  // 1 is mmha's
        CHECK(decode["group_sizes"][0] == 2);
        CHECK(decode["beam_widths"].size() == 8);
        CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
        CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
        CHECK(decode["drafts"]["tree"]["q_len"].size() == 64);
        CHECK(decode["drafts"]["ragged"] == true);
        for (char const* feature : {"sliding_window", "softcap", "sinks", "lse"}) CHECK(decode[feature] == true);
        for (char const* feature : {"input_kv", "skip_softmax", "numeric_fp8"}) CHECK(decode[feature] == false);
    }
}

TEST_CASE("gmma's capabilities are the shapes that it serves by choice, on sm_90a alone", "[service][A01][A02]") {
    World world;
    for (char const* arch : {"sm_80", "sm_100a", "sm_120f"})
        CHECK(capabilities(*world.service(), arch, Family::kGmma)["decode"].is_null());
    json const decode = capabilities(*world.service(), "sm_90a", Family::kGmma)["decode"];
    CHECK(decode["page_sizes"] == json({0, 8, 16, 32, 64, 128}));
    CHECK(decode["head_dims"] == json({32, 64, 128, 192, 256}));  // of whole lines, or half a one
    REQUIRE(decode["group_sizes"].size() == 127);                 // 1 is mmha's
    CHECK(decode["group_sizes"][0] == 2);
    CHECK(decode["beam_widths"] == json({1}));
    CHECK(decode["divisions"] == json({"static", "balanced", "invariant"}));
    CHECK(decode["dtypes"] == capabilities(*world.service(), "sm_90a", Family::kHmma)["decode"]["dtypes"]);
    CHECK(decode["drafts"]["linear"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["tree"]["q_len"].size() == 64);
    CHECK(decode["drafts"]["ragged"] == true);
    for (char const* feature : {"sliding_window", "softcap", "sinks", "lse", "input_kv", "skip_softmax", "numeric_fp8"})
        CHECK(decode[feature] == true);
}

TEST_CASE("the listing names entries, and one is shown by the start of its key", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    for (std::uint32_t const head_dim : {64u, 128u}) {
        XQAParams params = plain_params();
        params.head_dim = head_dim;
        require_ok(service->prepare(params));
    }
    json const listing = json::parse(must(service->cache_list()));
    CHECK(listing["schema"] == "xqajit.cache.ls/1");
    REQUIRE(listing["entries"].size() == 2);
    CHECK(listing["summary"]["entries"] == 2);
    for (json const& entry : listing["entries"]) {
        CHECK(entry["ok"] == true);
        CHECK(entry["metadata"]["family"] == "gmma");
        CHECK(entry["metadata"]["target"] == "sm_90a");
        CHECK(entry["metadata"]["nvrtc_version"] == "13.0");
        CHECK(entry["metadata"]["macros"].contains("XQAJIT_HEAD_DIM"));
        std::string const key = entry["key"];
        json const shown = json::parse(must(service->cache_show(key.substr(0, 16))));
        CHECK(shown["schema"] == "xqajit.cache.show/1");
        CHECK(shown["key"] == key);
    }
    CHECK(service->cache_show("").status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(service->cache_show("zz").status().message(), "zz"));

    // The same body by another compiler: the body alone names both.
    std::string const key = listing["entries"][0]["key"];
    XQAParams other = plain_params();
    world.install_compiler(1);
    auto const second = world.service();
    for (std::uint32_t const head_dim : {64u, 128u}) {
        other.head_dim = head_dim;
        require_ok(second->prepare(other));
    }
    Status const ambiguous = second->cache_show(key.substr(0, 32)).status();
    CHECK(ambiguous.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(ambiguous.message(), "2 entries"));
    CHECK(contains(ambiguous.message(), key));
    require_ok(second->cache_show(key).status());
}

TEST_CASE("verify names each entry that fails its checks", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    Service::VerifyReport const good = must(service->cache_verify());
    require_ok(good.status);
    CHECK(json::parse(good.json)["summary"]["ok"] == 1);
    std::string const path = world.cache_files().front();
    std::ofstream(path, std::ios::app) << "x";
    Service::VerifyReport const bad = must(service->cache_verify());
    CHECK(bad.status.code() == XQAJIT_CACHE_CORRUPT);
    json const document = json::parse(bad.json);
    CHECK(document["schema"] == "xqajit.cache.verify/1");
    CHECK(document["failed"][0]["path"] == path);
    CHECK(document["summary"]["failed"] == 1);
    CHECK(std::filesystem::exists(path));  // looking moves nothing
}

TEST_CASE("verify tells what is damaged from what it cannot read", "[service]") {
    World world;
    std::string const entry =
        world.cache_dir() + "/ab/" + std::string("ab") + std::string(30, '0') + "/" + std::string(32, '1') + ".xqa";
    std::filesystem::path const body = std::filesystem::path(entry).parent_path();
    std::filesystem::create_directories(body);
    std::filesystem::create_directory(world.cache_dir() + "/cd");
    for (auto const& item : std::filesystem::recursive_directory_iterator(world.cache_dir()))
        std::filesystem::permissions(item.path(), std::filesystem::perms::owner_all);
    world.write("damaged", "damaged");
    std::filesystem::copy(world.folder() + "/damaged", entry);
    std::filesystem::permissions(entry, std::filesystem::perms::owner_read);
    std::filesystem::permissions(world.cache_dir(), std::filesystem::perms::owner_all);
    auto const service = world.service();
    auto const verified = [&] {
        Service::VerifyReport const report = must(service->cache_verify());
        json document = json::parse(report.json);
        document["status"] = report.status.code();
        return document;
    };
    json const damaged = verified();
    CHECK(damaged["status"] == XQAJIT_CACHE_CORRUPT);
    CHECK(damaged["summary"] == json({{"entries", 1},
                                      {"ok", 0},
                                      {"failed", 1},
                                      {"corrupt", 1},
                                      {"unreadable", 0},
                                      {"temporaries", 0},
                                      {"temporary_bytes", 0}}));
    CHECK(damaged["failed"][0]["state"] == "corrupt");
    CHECK(damaged["failed"][0]["path"] == entry);

    // Room for one descriptor more: the directory is read, no folder of it can be.
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int const free = ::dup(0);
    ::close(free);
    rlimit const small{static_cast<rlim_t>(free) + 1, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &small) == 0);
    json const unreadable = verified();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    INFO(unreadable.dump());
    CHECK(unreadable["status"] == XQAJIT_UNAVAILABLE);
    CHECK(unreadable["summary"] == json({{"entries", 0},
                                         {"ok", 0},
                                         {"failed", 2},
                                         {"corrupt", 0},
                                         {"unreadable", 2},
                                         {"temporaries", 0},
                                         {"temporary_bytes", 0}}));
    for (json const& failed : unreadable["failed"]) {
        CHECK(failed["state"] == "unreadable");
        CHECK(contains(failed["error"].get<std::string>(), "EMFILE"));
    }
}

}  // namespace xqajit
