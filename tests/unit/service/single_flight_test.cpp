// One compile a kernel among processes that share a cache directory.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "unit/cache/fixture.h"
#include "world.h"

namespace xqajit {
namespace {

using namespace testing;
using cache::test::start_child;
using cache::test::wait_child;
using nlohmann::json;

void end_by_force(pid_t child) {
    ::kill(child, SIGKILL);
    CHECK(wait_child(child) == 1000 + SIGKILL);
}

XQAParams of_head_dim(std::uint32_t head_dim) {
    XQAParams params = plain_params();
    params.head_dim = head_dim;
    return params;
}

int prepare_here(World const& world, XQAParams const& params = plain_params()) {
    world.enter(0);
    return world.service()->prepare(params).ok() ? 0 : 1;
}

// A process that is in the midst of its compile when this returns.
pid_t start_compile(World const& world, char const* variable, char const* value) {
    std::size_t const before = world.compiles();
    World::set(variable, value);
    pid_t const child = start_child([&] { return prepare_here(world); });
    World::set(variable, "");
    while (world.compiles() == before) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return child;
}

std::size_t lines_of_locks(World const& world) { return world.logged("another process").size() + world.logged("locks/").size(); }

constexpr char kList[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "page_size": 64}, "shapes": [
  {"name": "a", "num_q_heads": 32, "head_dim": [64, 128, 256]},
  {"name": "b", "num_q_heads": 8, "head_dim": [80, 96, 112]}]})";

}  // namespace

TEST_CASE("32 processes that start cold compile a kernel once, and all launch that image", "[service][J01]") {
    World world;
    World::set("XQAJIT_ARCH", "compute_90");  // PTX: the fake driver shows what it was given
    World::set("FAKE_NVRTC_DELAY_MS", "200");
    std::array<int, 2> gate{};
    REQUIRE(::pipe2(gate.data(), O_CLOEXEC) == 0);
    constexpr int kProcesses = 32;
    std::vector<pid_t> children;
    for (int number = 0; number < kProcesses; ++number)
        children.push_back(start_child([&] {
            ::close(gate[1]);
            char ignored = 0;
            (void)!::read(gate[0], &ignored, 1);  // until the parent opens the gate for all
            world.enter(0);
            auto const service = world.service();
            if (!service->prepare(plain_params()).ok()) return 2;
            world.write("image-" + std::to_string(number), world.cuda().last_ptx());
            xqajit_stats const stats = service->stats();
            return stats.compiles + stats.disk_hits == 1 ? static_cast<int>(stats.compiles) : 3;
        }));
    ::close(gate[1]);
    int compiles = 0;
    for (pid_t const child : children) {
        int const end = wait_child(child);
        CHECK(end <= 1);
        compiles += end;
    }
    ::close(gate[0]);
    CHECK(compiles == 1);
    CHECK(world.compiles() == 1);
    std::set<std::string> images;
    for (int number = 0; number < kProcesses; ++number)
        images.insert(world.read(world.folder() + "/image-" + std::to_string(number)));
    CHECK(images.size() == 1);
    CHECK(images.begin()->size() > 100);
    CHECK(world.cache_files().size() == 1);
    CHECK(std::filesystem::is_empty(world.cache_dir() + "/locks"));
    CHECK(must(world.service()->cache_verify()).status.ok());
}

TEST_CASE("a waiter takes what the other process has stored, and does not compile", "[service][J01]") {
    World world;
    world.enter(0);
    pid_t const other = start_compile(world, "FAKE_NVRTC_DELAY_MS", "300");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(wait_child(other) == 0);
    CHECK(world.compiles() == 1);
    CHECK(service->stats().compiles == 0);
    CHECK(service->stats().disk_hits == 1);
    CHECK(service->stats().lock_waits == 1);
}

TEST_CASE("where the compiling process is killed the next one compiles", "[service][J22]") {
    World world;
    world.enter(0);
    bool const in_worker = GENERATE(false, true);
    World::set("XQAJIT_COMPILE", in_worker ? "worker" : "");
    pid_t const killed = start_compile(world, "FAKE_NVRTC_HANG", "1");
    pid_t const waiting = start_child([&] { return prepare_here(world); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(world.compiles() == 1);
    end_by_force(killed);  // its worker lives on, and holds nothing
    CHECK(wait_child(waiting) == 0);
    CHECK(world.compiles() == 2);
    require_ok(world.service()->prepare(plain_params()));
    CHECK(world.compiles() == 2);
    if (!in_worker) return;
    std::ifstream file(world.folder() + "/compiles");
    std::string target;
    pid_t worker = 0;
    file >> target >> worker;
    REQUIRE(worker > 1);
    ::kill(worker, SIGKILL);
}

TEST_CASE("a wait that is in vain is told of, and ends in a compile of one's own", "[service][J22]") {
    World world;
    world.enter(0);
    pid_t const stuck = start_compile(world, "FAKE_NVRTC_HANG", "1");
    World::set("XQAJIT_LOCK_TIMEOUT", "1");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 2);
    CHECK(service->stats().compiles == 1);
    CHECK(service->stats().lock_waits == 1);
    CHECK(lines_of_locks(world) == 2);
    std::vector<std::string> const waits = world.logged("waiting for another process");
    REQUIRE(waits.size() == 1);
    std::string const path = world.cache_files().front();
    CHECK(contains(waits[0], std::filesystem::path(path).parent_path().filename().string().substr(0, 12)));
    CHECK(contains(waits[0], world.cache_dir()));
    CHECK(world.logged("compiled here too").size() == 1);
    end_by_force(stuck);
}

TEST_CASE("with a timeout of 0 nothing is waited for or said", "[service][J22]") {
    World world;
    world.enter(0);
    pid_t const stuck = start_compile(world, "FAKE_NVRTC_HANG", "1");
    World::set("XQAJIT_LOCK_TIMEOUT", "0");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 2);
    CHECK(service->stats().lock_waits == 0);
    CHECK(lines_of_locks(world) == 0);
    end_by_force(stuck);
}

TEST_CASE("a kernel does not wait for another's compile", "[service][J05]") {
    World world;
    world.enter(0);
    pid_t const stuck = start_compile(world, "FAKE_NVRTC_HANG", "1");
    auto const service = world.service();
    for (std::uint32_t const head_dim : {64u, 256u}) require_ok(service->prepare(of_head_dim(head_dim)));
    CHECK(service->stats().compiles == 2);
    CHECK(service->stats().lock_waits == 0);
    end_by_force(stuck);
}

TEST_CASE("processes whose kernel does not compile fail side by side", "[service][J24]") {
    World world;
    World::set("FAKE_NVRTC_FAIL", "a bad day");
    pid_t const first = start_compile(world, "FAKE_NVRTC_DELAY_MS", "400");
    World::set("FAKE_NVRTC_DELAY_MS", "400");
    std::vector<pid_t> others;
    for (int i = 0; i < 16; ++i) others.push_back(start_child([&] { return prepare_here(world) == 1 ? 0 : 1; }));
    auto const start = std::chrono::steady_clock::now();
    CHECK(wait_child(first) == 1);
    for (pid_t const other : others) CHECK(wait_child(other) == 0);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(16 * 400));
    CHECK(world.compiles() == 17);
    CHECK(std::filesystem::is_empty(world.cache_dir() + "/locks"));
}

TEST_CASE("without locks every process compiles, with one warning", "[service][J22]") {
    World world;
    world.enter(0);
    std::filesystem::create_directory(world.cache_dir());
    std::filesystem::permissions(world.cache_dir(), std::filesystem::perms(0700));
    world.write("cache/locks", "");
    auto const service = world.service();
    for (std::uint32_t const head_dim : {64u, 128u}) require_ok(service->prepare(of_head_dim(head_dim)));
    CHECK(service->stats().compiles == 2);
    CHECK(lines_of_locks(world) == 0);
    CHECK(world.logged("may each compile").size() == 1);
    CHECK(world.cache_files().size() == 2);
}

TEST_CASE("a directory that cannot be written costs its one warning, and none for the lock", "[service][J22]") {
    World world;
    std::filesystem::create_directory(world.cache_dir());
    std::filesystem::permissions(world.cache_dir(), std::filesystem::perms(0555));
    std::filesystem::permissions(world.folder(), std::filesystem::perms(0777));
    world.write("compiles", "");
    std::filesystem::permissions(world.folder() + "/compiles", std::filesystem::perms(0666));
    pid_t const child = start_child([&] {
        if (::geteuid() == 0 && ::seteuid(65533) != 0) return 1;  // one whom permission bits bind
        world.enter(0);
        auto const service = world.service();
        for (std::uint32_t const head_dim : {64u, 128u})
            if (!service->prepare(of_head_dim(head_dim)).ok()) return 2;
        if (service->stats().compiles != 2) return 3;
        return world.logged("not kept on disk").size() == 1 && lines_of_locks(world) == 0 ? 0 : 4;
    });
    CHECK(wait_child(child) == 0);
    CHECK(world.compiles() == 2);
    CHECK(std::filesystem::is_empty(world.cache_dir()));
}

TEST_CASE("what was compiled is launched, whatever becomes of its entry", "[service][J03]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    std::filesystem::remove_all(world.cache_dir());
    world.enter(0);  // another context, for which the image is loaded anew
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(service->stats().disk_hits == 0);
}

TEST_CASE("services that find the same entry refused by the driver have it compiled again once", "[service][J01][J29]") {
    World world;
    CUcontext const context = world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    world.cuda().fail_images(CUDA_ERROR_INVALID_IMAGE, CUDA_SUCCESS);  // the new one will be refused too: PTX is what is left
    constexpr std::size_t kServices = 4;
    std::vector<Status> results(kServices);
    {
        json const key = json::parse(must(world.service()->explain(plain_params(), nullptr, 1, 1)))["key"];
        CacheKey wanted;
        REQUIRE(Digest::parse(key["body"].get<std::string>(), wanted.body));
        REQUIRE(Digest::parse(key["compiler"]["id"].get<std::string>(), wanted.compiler));
        auto const store = cache::test::open_store(world.cache_dir());
        std::optional<cache::KeyLock> held = store->lock(wanted, {});  // until all have the old entry
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < kServices; ++i)
            threads.emplace_back([&, i] {
                Result<driver::ScopedContext> const scope = driver::ScopedContext::enter(context);
                Result<std::unique_ptr<Service>> const service = Service::create("");
                results[i] = !scope.ok() ? scope.status() : !service.ok() ? service.status() : (*service)->prepare(plain_params());
            });
        while (world.logged("waiting for another process").size() < kServices)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        held.reset();
    }
    for (Status const& result : results) require_ok(result);
    world.cuda().fail_images(CUDA_SUCCESS, CUDA_SUCCESS);
    std::vector<std::string> const targets = world.compiled_targets();
    CHECK(std::count(targets.begin(), targets.end(), "sm_90a") == 2);
    CHECK(std::count(targets.begin(), targets.end(), "compute_90a") == 1);
    CHECK(must(world.service()->cache_verify()).status.ok());
}

TEST_CASE("two prewarms of one list share its kernels", "[service][J01]") {
    World world;
    World::set("FAKE_NVRTC_DELAY_MS", "100");
    std::vector<pid_t> children;
    for (int number = 0; number < 2; ++number)
        children.push_back(start_child([&] {
            xqajit_prewarm_options options = XQAJIT_PREWARM_OPTIONS_INIT;
            options.archs = "sm_90a";
            options.jobs = 2;
            Service::PrewarmReport const report = must(world.service()->prewarm(kList, options));
            world.write("report-" + std::to_string(number), report.json);
            return report.status.ok() ? 0 : 1;
        }));
    for (pid_t const child : children) CHECK(wait_child(child) == 0);
    CHECK(world.compiles() == 6);
    int compiled = 0;
    for (char const* const name : {"/report-0", "/report-1"}) {
        json const summary = json::parse(world.read(world.folder() + name))["summary"];
        compiled += summary["compiled"].get<int>();
        CHECK(summary["compiled"].get<int>() + summary["hits"].get<int>() == 6);
        CHECK(summary["failed"] == 0);
    }
    CHECK(compiled == 6);
    CHECK(std::filesystem::is_empty(world.cache_dir() + "/locks"));
}

}  // namespace xqajit
