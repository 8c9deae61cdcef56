#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

constexpr char kList[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "page_size": 64}, "shapes": [
  {"name": "a", "num_q_heads": 32, "head_dim": [64, 128]},
  {"name": "b", "num_q_heads": 32, "head_dim": 128, "softcap": 0},
  {"name": "c", "num_q_heads": 8, "head_dim": 80}]})";

xqajit_prewarm_options options_for(char const* archs) {
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = archs;
    return options;
}

json prewarm(Service& service, char const* archs, xqajit_status expected = XQAJIT_OK) {
    Service::PrewarmReport const report = must(service.prewarm(kList, options_for(archs)));
    INFO(report.json);
    CHECK(report.status.code() == expected);
    return json::parse(report.json);
}

}  // namespace

TEST_CASE("prewarm compiles each distinct kernel once, in workers, and finds them the next time", "[service]") {
    World world;
    auto const service = world.service();
    json const first = prewarm(*service, "sm_90a,sm_80");
    CHECK(first["schema"] == "xqajit.prewarm/1");
    CHECK(first["summary"]["entries"] == 4);
    CHECK(first["summary"]["kernels"] == 6);
    CHECK(first["summary"]["compiled"] == 6);
    CHECK(first["summary"]["failed"] == 0);
    CHECK(world.compiles() == 6);
    CHECK_FALSE(world.nvrtc_is_loaded());
    std::map<std::string, int> targets;
    for (json const& kernel : first["kernels"]) {
        ++targets[kernel["target"]];
        CHECK(kernel["result"] == "compiled");
        bool const plain_mha = kernel["names"][0] == "c";
        CHECK(kernel["family"] == (plain_mha ? "mmha" : kernel["target"] == "sm_90a" ? "gmma" : "hmma"));
        CHECK(kernel["bytes"].get<int>() > 0);
        CHECK(kernel.contains("registers"));
        CHECK(kernel.contains("spill_bytes"));
        CHECK(kernel["key"].get<std::string>().size() == 65);
    }
    CHECK(targets == std::map<std::string, int>{{"sm_90a", 3}, {"sm_80", 3}});
    CHECK(first["kernels"][1]["names"] == json({"a", "b"}));  // both are D 128

    json const second = prewarm(*world.service(), "sm_90a,sm_80");
    CHECK(second["summary"]["hits"] == 6);
    CHECK(second["summary"]["compiled"] == 0);
    CHECK(world.compiles() == 6);
    // What was prewarmed is what a launch asks for.
    world.enter(0);
    XQAParams params = plain_params();
    require_ok(world.service()->prepare(params));
    CHECK(world.compiles() == 6);
}

TEST_CASE("a worker's death fails its kernel alone", "[service]") {
    World world;
    struct Row {
        char const* variable;
        char const* value;
        char const* named;
    };
    for (Row const& row : {Row{"FAKE_NVRTC_CRASH", "1", "SIGSEGV"}, Row{"FAKE_NVRTC_MEMORY", "kill", "SIGKILL"},
                           Row{"FAKE_NVRTC_FAIL", "kernel.cu(7): error: a bad day", "a bad day"}}) {
        INFO(row.variable);
        World::set("XQAJIT_CACHE_DIR", world.folder() + "/" + row.variable);
        World::set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=80");
        World::set(row.variable, row.value);
        auto const service = world.service();
        json const report = prewarm(*service, "sm_90a", XQAJIT_COMPILE_FAILED);
        CHECK(report["summary"]["compiled"] == 2);
        CHECK(report["summary"]["failed"] == 1);
        for (json const& kernel : report["kernels"]) {
            bool const doomed = kernel["names"][0] == "c";
            CHECK(kernel["result"] == (doomed ? "failed" : "compiled"));
            if (doomed) CHECK(contains(kernel["error"].get<std::string>(), row.named));
        }
        CHECK(service->stats().compile_failures == 1);
        World::set(row.variable, "");
        World::set("FAKE_NVRTC_ONLY", "");
        CHECK(prewarm(*world.service(), "sm_90a")["summary"]["hits"] == 2);  // and can be tried again
    }
}

TEST_CASE("without a compiler a covered list is all hits, and another is not possible here", "[service][J14]") {
    World world;
    prewarm(*world.service(), "sm_90a");
    world.set("XQAJIT_NVRTC_PATH", world.folder() + "/nowhere");
    CHECK(prewarm(*world.service(), "sm_90a")["summary"]["hits"] == 3);
    json const report = prewarm(*world.service(), "sm_80", XQAJIT_UNAVAILABLE);
    CHECK(report["summary"]["failed"] == 3);
    CHECK(contains(report["kernels"][0]["error"].get<std::string>(), world.folder() + "/nowhere"));
}

TEST_CASE("a covered list is all hits where the directory cannot be written, and another fails by name", "[service][J12]") {
    bool const is_root = ::geteuid() == 0;
    uid_t const user = is_root ? 65533 : ::geteuid();  // one whom permission bits bind
    World world;
    prewarm(*world.service(), "sm_90a");
    std::filesystem::permissions(world.folder(), std::filesystem::perms(0755));
    for (bool const owned : {false, true}) {  // a layer of root's, or a read-only one of one's own
        INFO(owned);
        if (!owned && !is_root) continue;
        std::vector<std::filesystem::path> paths = {world.cache_dir()};
        for (auto const& item : std::filesystem::recursive_directory_iterator(world.cache_dir())) paths.push_back(item.path());
        for (auto const& path : paths) {
            std::filesystem::permissions(path, std::filesystem::perms(std::filesystem::is_directory(path) ? 0555 : 0444));
            if (is_root) REQUIRE(::lchown(path.c_str(), owned ? user : 0, static_cast<gid_t>(-1)) == 0);
        }
        REQUIRE(::seteuid(user) == 0);
        json const hits = prewarm(*world.service(), "sm_90a");
        json const misses = prewarm(*world.service(), "sm_80", XQAJIT_COMPILE_FAILED);
        REQUIRE(::seteuid(is_root ? 0 : user) == 0);
        CHECK(hits["summary"]["hits"] == 3);
        CHECK(hits["summary"]["failed"] == 0);
        CHECK(misses["summary"]["failed"] == 3);
        std::string const error = misses["kernels"][0]["error"];
        CHECK(contains(error, "cannot be kept on disk"));
        CHECK(contains(error, world.cache_dir()));
    }
    CHECK(world.compiles() == 3);
}

TEST_CASE("without a compiler is what a run says wherever in the list the kernel stands", "[service][J14]") {
    World world;
    world.set("XQAJIT_NVRTC_PATH", world.folder() + "/nowhere");
    std::string const good = R"({"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64})";
    std::string const bad = R"({"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "cross_attention": 1})";
    for (std::string const& shapes : {good + "," + bad, bad + "," + good}) {
        INFO(shapes);
        std::string const list = R"({"version": 1, "shapes": [)" + shapes + "]}";
        CHECK(must(world.service()->prewarm(list, options_for("sm_90a"))).status.code() == XQAJIT_UNAVAILABLE);
    }
}

TEST_CASE("a kernel that the disk does not take is a failure that says so, though there is a compiler", "[service][J12]") {
    World world;
    auto const service = world.service();
    std::filesystem::create_directory(world.cache_dir());
    world.write("cache/00", "");
    for (int prefix = 1; prefix < 256; ++prefix) {  // a file in place of each folder
        char name[16];
        std::snprintf(name, sizeof name, "cache/%02x", static_cast<unsigned>(prefix));
        world.write(name, "");
    }
    Service::PrewarmReport const report = must(service->prewarm(kList, options_for("sm_90a")));
    INFO(report.json);
    CHECK(report.status.code() == XQAJIT_COMPILE_FAILED);
    CHECK(contains(report.status.message(), "cannot be kept on disk"));
    CHECK(json::parse(report.json)["summary"]["failed"] == 3);
}

TEST_CASE("progress is told one kernel at a time, up to all of them", "[service]") {
    World world;
    struct Seen {
        std::atomic<int> inside{0};
        std::uint32_t calls = 0, last = 0, total = 0;
        bool overlapped = false;
    } seen;
    xqajit_prewarm_options options = options_for("sm_90a,sm_80,sm_86");
    options.jobs = 4;
    options.user = &seen;
    options.progress = [](void* user, std::uint32_t done, std::uint32_t total, char const*) {
        Seen& s = *static_cast<Seen*>(user);
        s.overlapped = s.overlapped || ++s.inside != 1;
        ++s.calls;
        s.last = done;
        s.total = total;
        --s.inside;
    };
    require_ok(must(world.service()->prewarm(kList, options)).status);
    CHECK(seen.calls == 9);
    CHECK(seen.last == 9);
    CHECK(seen.total == 9);
    CHECK_FALSE(seen.overlapped);
}

TEST_CASE("a progress function that throws is not called again, and every kernel is compiled all the same", "[service]") {
    struct Seen {
        std::uint32_t throw_at;
        bool standard;
        std::uint32_t calls = 0;
    };
    for (std::uint32_t const hits : {0u, 3u}) {
        for (Seen seen : {Seen{1, true}, Seen{2, false}, Seen{5, true}, Seen{9, true}}) {
            INFO(hits << " hits, throws at " << seen.throw_at);
            World world;
            if (hits != 0) prewarm(*world.service(), "sm_90a");
            xqajit_prewarm_options options = options_for("sm_90a,sm_80,sm_86");
            options.jobs = 4;
            options.user = &seen;
            options.progress = [](void* user, std::uint32_t, std::uint32_t, char const*) {
                Seen& s = *static_cast<Seen*>(user);
                if (++s.calls != s.throw_at) return;
                if (s.standard) throw std::runtime_error("a broken pipe");
                throw 7;
            };
            Service::PrewarmReport const report = must(world.service()->prewarm(kList, options));
            CHECK(seen.calls == seen.throw_at);
            CHECK(report.status.code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(contains(report.status.message(), "progress threw"));
            CHECK(contains(report.status.message(), "kernel " + std::to_string(seen.throw_at) + " of 9"));
            CHECK(contains(report.status.message(), seen.standard ? "a broken pipe" : "unknown exception"));
            CHECK(json::parse(report.json)["summary"]["failed"] == 0);
            CHECK(world.cache_files().size() == 9);
        }
    }
}

TEST_CASE("prewarm compiles the kernels that take longest first, and reports all in the list's order", "[service]") {
    World world;
    std::string const list = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8}, "shapes": [
      {"name": "single row", "num_q_heads": 8, "head_dim": 128},
      {"name": "plain", "num_q_heads": 64, "head_dim": 128},
      {"name": "wide", "num_q_heads": 64, "head_dim": 256},
      {"name": "8-bit", "num_q_heads": 64, "head_dim": 128, "kv_dtype": "int8"},
      {"name": "8-bit, small", "num_q_heads": 64, "head_dim": 64, "kv_dtype": "fp8_e4m3"}]})";
    std::vector<std::string> lines;
    xqajit_prewarm_options options = options_for("sm_90a");
    options.jobs = 1;
    options.user = &lines;
    options.progress = [](void* user, std::uint32_t, std::uint32_t, char const* text) {
        std::string const line = text;
        std::size_t const name = line.rfind('(') + 1;
        static_cast<std::vector<std::string>*>(user)->push_back(line.substr(name, line.rfind(')') - name));
    };
    Service::PrewarmReport const report = must(world.service()->prewarm(list, options));
    require_ok(report.status);
    CHECK(lines == std::vector<std::string>{"8-bit, small", "8-bit", "plain", "wide", "single row"});
    std::vector<std::string> reported;
    json const document = json::parse(report.json);
    for (json const& kernel : document["kernels"]) reported.push_back(kernel["names"][0]);
    CHECK(reported == std::vector<std::string>{"single row", "plain", "wide", "8-bit", "8-bit, small"});
}

TEST_CASE("a shape that no family serves is a failure with its rule, and the rest is compiled", "[service]") {
    World world;
    std::string const list = R"({"version": 1, "shapes": [
      {"name": "good", "q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64},
      {"name": "bad", "q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": 64, "cross_attention": 1}]})";
    Service::PrewarmReport const report = must(world.service()->prewarm(list, options_for("sm_90a")));
    CHECK(report.status.code() == XQAJIT_COMPILE_FAILED);
    json const document = json::parse(report.json);
    CHECK(document["summary"]["compiled"] == 1);
    CHECK(document["kernels"][1]["result"] == "failed");
    CHECK(contains(document["kernels"][1]["error"].get<std::string>(), "common.cross_attention"));
}

TEST_CASE("prewarm refuses what makes no sense before it starts", "[service]") {
    World world;
    auto const service = world.service();
    CHECK(service->prewarm("not json", options_for("sm_90a")).status().code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(service->prewarm(kList, options_for("sm_19")).status().code() == XQAJIT_INVALID_ARGUMENT);
    world.cuda().set_devices("");
    CHECK(service->prewarm(kList, options_for(nullptr)).status().code() == XQAJIT_UNAVAILABLE);
    world.write("a-file", "");
    world.set("XQAJIT_CACHE_DIR", world.folder() + "/a-file");
    Status const unwritable = world.service()->prewarm(kList, options_for("sm_90a")).status();
    CHECK(unwritable.code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(unwritable.message(), "a-file"));
    CHECK(world.compiles() == 0);
}

TEST_CASE("prewarm takes the present GPUs' archs by default", "[service]") {
    World world;
    world.cuda().set_devices("9.0,8.6,9.0");
    json const report = prewarm(*world.service(), nullptr);
    CHECK(report["summary"]["kernels"] == 6);
}

}  // namespace xqajit
