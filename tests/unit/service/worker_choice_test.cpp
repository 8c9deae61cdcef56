// Which process compiles: the worker that XQAJIT_WORKER names, the one that is installed, or this process.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/subprocess.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using nlohmann::json;

constexpr char kList[] = R"({"version": 1, "shapes": [
  {"q_dtype": "bf16", "num_q_heads": 8, "num_kv_heads": 8, "head_dim": [64, 128]}]})";

Result<Service::PrewarmReport> prewarm(Service& service) {
    xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
    options.archs = "sm_90a";
    return service.prewarm(kList, options);
}

}  // namespace

TEST_CASE("a worker that XQAJIT_WORKER names wrongly is an error, and doctor shows it", "[service][A07]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_COMPILE", "worker");
    world.write("plain", "text");
    for (std::string const& wrong :
         {world.folder() + "/no-worker", world.folder(), world.folder() + "/plain", std::string("worker")}) {
        INFO(wrong);
        world.set("XQAJIT_WORKER", wrong);
        auto const service = world.service();
        for (Status const& status : {service->prepare(plain_params()), prewarm(*service).status()}) {
            CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
            CHECK(contains(status.message(), "XQAJIT_WORKER is '" + wrong + "'"));
        }
        json const doctor = json::parse(must(service->doctor()))["worker"];
        CHECK(doctor["found"] == false);
        CHECK(contains(doctor["reason"].get<std::string>(), "XQAJIT_WORKER is '" + wrong + "'"));
    }
    CHECK(world.compiles() == 0);
    world.set("XQAJIT_COMPILE", "");  // no worker is asked for
    require_ok(world.service()->prepare(plain_params()));
}

TEST_CASE("in a folder without a worker everything is compiled in this process, with one warning", "[.alone]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_WORKER", "");
    world.set("XQAJIT_COMPILE", "worker");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    Service::PrewarmReport const report = must(prewarm(*service));
    require_ok(report.status);
    CHECK(json::parse(report.json)["summary"]["compiled"] == 2);
    CHECK(world.logged("compiling in this process").size() == 1);
    CHECK(World::nvrtc_is_loaded());
}

TEST_CASE("where no worker is installed and none is named, this process compiles", "[service]") {
    World world;
    std::string const copy = world.folder() + "/bin/unit_service";
    std::filesystem::create_directory(world.folder() + "/bin");
    std::filesystem::copy_file("/proc/self/exe", copy);
    auto const process = must(run_process({copy, "[.alone]"}, "", std::chrono::minutes(5)));
    INFO(process.describe() << "\n" << process.out << process.err);
    CHECK(process.end == ProcessResult::End::kExited);
    CHECK(process.code == 0);
}

}  // namespace xqajit
