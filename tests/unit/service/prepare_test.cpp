#include <filesystem>
#include <fstream>
#include <thread>

#include "world.h"

namespace xqajit {
namespace {

using namespace testing;

std::uint64_t disk_hits(Service const& service) { return service.stats().disk_hits; }

}  // namespace

TEST_CASE("a shape is compiled once, then found in memory, then on disk by another service", "[service]") {
    World world;
    world.enter(0);
    auto const first = world.service();
    require_ok(first->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(first->stats().compiles == 1);
    CHECK(first->stats().memory_hits == 0);
    require_ok(first->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(first->stats().memory_hits == 1);

    auto const second = world.service();
    require_ok(second->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(disk_hits(*second) == 1);
    CHECK(second->stats().compiles == 0);
}

TEST_CASE("a warm process never loads the compiler", "[service][J14]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_COMPILE", "worker");  // so that this process is one that never compiled
    require_ok(world.service()->prepare(plain_params()));
    REQUIRE(world.compiles() == 1);
    world.set("XQAJIT_COMPILE", "");
    auto const warm = world.service();
    require_ok(warm->prepare(plain_params()));
    Launch launch(plain_params(), 2);
    launch.add_workspace(*warm);
    require_ok(warm->run(launch.params, launch.args, nullptr));
    CHECK(disk_hits(*warm) == 1);
    CHECK_FALSE(world.nvrtc_is_loaded());
}

TEST_CASE("a damaged entry is set aside and compiled again", "[service][J07]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    std::vector<std::string> const files = world.cache_files();
    REQUIRE(files.size() == 1);
    std::string const path = files.front();
    std::string const good = world.read(path);
    std::string flipped = good;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x40);

    std::size_t compiles = 1;
    auto const heals = [&] {
        auto const service = world.service();
        require_ok(service->prepare(plain_params()));
        CHECK(world.compiles() == ++compiles);
        CHECK(service->stats().quarantined == 1);
        auto const after = world.service();
        require_ok(after->prepare(plain_params()));
        CHECK(world.compiles() == compiles);
    };
    for (std::string const& bad :
         {std::string(), good.substr(0, good.size() / 2), good.substr(0, good.size() - 1), flipped, good + "x"}) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
        heals();
    }
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    heals();
}

TEST_CASE("an entry under another key's name is set aside", "[service][J07]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    std::string const path = world.cache_files().front();
    XQAParams other = plain_params();
    other.head_dim = 64;
    require_ok(service->prepare(other));
    for (std::string const& file : world.cache_files())
        if (file != path) std::filesystem::copy_file(file, path, std::filesystem::copy_options::overwrite_existing);
    auto const healed = world.service();
    require_ok(healed->prepare(plain_params()));
    CHECK(world.compiles() == 3);
    CHECK(healed->stats().quarantined == 1);
}

TEST_CASE("no decision uses file times", "[service][J11]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    using std::filesystem::file_time_type;
    for (auto const shift : {std::chrono::hours(-100000), std::chrono::hours(100000)}) {
        for (std::string const& file : world.cache_files())
            std::filesystem::last_write_time(file, file_time_type::clock::now() + shift);
        require_ok(world.service()->prepare(plain_params()));
    }
    CHECK(world.compiles() == 1);
}

TEST_CASE("an image from disk that the driver refuses is compiled again, and PTX is the last resort", "[service][J29]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));

    SECTION("the driver takes cubins: one load") {
        world.cuda().fail_images(CUDA_SUCCESS, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        require_ok(world.service()->prepare(plain_params()));
        CHECK(world.compiles() == 1);
    }
    SECTION("the driver takes PTX alone") {
        world.cuda().fail_images(CUDA_ERROR_INVALID_IMAGE, CUDA_SUCCESS);
        require_ok(world.service()->prepare(plain_params()));
        CHECK(world.compiled_targets() == std::vector<std::string>{"sm_90a", "sm_90a", "compute_90a"});
    }
    SECTION("the driver takes neither") {
        world.cuda().fail_images(CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        auto const service = world.service();
        Status const status = service->prepare(plain_params());
        CHECK(status.code() == XQAJIT_DRIVER_ERROR);
        CHECK(contains(status.message(), "CUDA_ERROR_INVALID_IMAGE"));
        CHECK(contains(status.message(), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
        world.cuda().fail_images(CUDA_SUCCESS, CUDA_SUCCESS);
        require_ok(service->prepare(plain_params()));  // a failure is not kept
    }
}

TEST_CASE("many threads that need one shape wait for one compile", "[service][J24]") {
    World world;
    CUcontext const context = world.enter(0);
    world.set("FAKE_NVRTC_DELAY_MS", "30");
    auto const service = world.service();
    constexpr int kThreads = 64;
    auto const prepare_all = [&](auto const& params_of) {
        std::vector<Status> results(kThreads);
        std::vector<std::jthread> threads;
        for (int i = 0; i < kThreads; ++i) {
            threads.emplace_back([&, i] {
                // No assertion here: Catch2's are for one thread.
                Result<driver::ScopedContext> const scope = driver::ScopedContext::enter(context);
                results[static_cast<std::size_t>(i)] = scope.ok() ? service->prepare(params_of(i)) : scope.status();
            });
        }
        threads.clear();
        return results;
    };

    SECTION("one key") {
        for (Status const& status : prepare_all([](int) { return plain_params(); })) CHECK(status.ok());
        CHECK(world.compiles() == 1);
        CHECK(world.cuda().live_modules() == 1);
    }
    SECTION("sixteen keys") {
        auto const params_of = [](int i) {
            XQAParams params = plain_params();
            params.head_dim = 16 * static_cast<std::uint32_t>(i % 16 + 1);
            return params;
        };
        for (Status const& status : prepare_all(params_of)) CHECK(status.ok());
        CHECK(world.compiles() == 16);
        CHECK(world.cuda().live_modules() == 16);
    }
    SECTION("a failure is shared, and a later call tries again") {
        world.set("FAKE_NVRTC_FAIL", "kernel.cu(1): error: no luck today");
        for (Status const& status : prepare_all([](int) { return plain_params(); })) {
            CHECK(status.code() == XQAJIT_COMPILE_FAILED);
            CHECK(contains(status.message(), "no luck today"));
        }
        world.set("FAKE_NVRTC_FAIL", "");
        require_ok(service->prepare(plain_params()));
        CHECK(service->stats().compiles == 1);
    }
}

TEST_CASE("a worker's crash is one compile's failure", "[service]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_COMPILE", "worker");
    world.set("FAKE_NVRTC_CRASH", "1");
    Status const status = world.service()->prepare(plain_params());
    CHECK(status.code() == XQAJIT_COMPILE_FAILED);
    CHECK(contains(status.message(), "SIGSEGV"));
}

TEST_CASE("one line is logged a compile or a disk hit, and none for a warm call", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    std::vector<std::string> const lines = world.logged("");
    REQUIRE(lines.size() == 1);
    CHECK(contains(lines.front(), "gmma sm_90a "));
    CHECK(contains(lines.front(), "compiled in"));
    require_ok(service->prepare(plain_params()));
    CHECK(world.logged("").size() == 1);
    require_ok(world.service()->prepare(plain_params()));
    CHECK(world.logged("disk hit").size() == 1);
}

TEST_CASE("a cache that can't be written costs a warning, not a launch", "[service]") {
    World world;
    world.enter(0);
    world.write("a-file", "");
    world.set("XQAJIT_CACHE_DIR", world.folder() + "/a-file");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(contains(must(service->cache_path()), "\"usable\": false"));
    CHECK(service->cache_list().status().code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("the directory that is named wins, and its origin is shown", "[service][J12]") {
    World world;
    world.set("XDG_CACHE_HOME", world.folder() + "/xdg");
    CHECK(contains(must(world.service()->cache_path()), world.cache_dir()));
    CHECK(contains(must(world.service()->cache_path()), "\"XQAJIT_CACHE_DIR\""));
    auto const by_argument = must(Service::create(world.folder() + "/argument"));
    CHECK(contains(must(by_argument->cache_path()), world.folder() + "/argument"));
    CHECK(contains(must(by_argument->cache_path()), "\"argument\""));
    world.set("XQAJIT_CACHE_DIR", "");
    CHECK(contains(must(world.service()->cache_path()), world.folder() + "/xdg/xqajit"));
    world.set("XDG_CACHE_HOME", "");
    world.set("HOME", "");
    auto const nowhere = world.service();
    CHECK(contains(must(nowhere->cache_path()), "\"usable\": false"));
    world.enter(0);
    require_ok(nowhere->prepare(plain_params()));
}

TEST_CASE("shapes that differ in run-time values alone share one kernel", "[service]") {
    World world;
    world.enter(0);
    auto const service = world.service();
    XQAParams params = plain_params();
    params.softcap = 30;
    params.sliding_window = 128;
    require_ok(service->prepare(params));
    params.softcap = 50;
    params.sliding_window = 4096;
    params.qk_scale = 0.5f;
    params.division = XQAJIT_DIVISION_INVARIANT;
    params.num_q_heads = 4;  // the same group
    params.num_kv_heads = 1;
    require_ok(service->prepare(params));
    CHECK(world.compiles() == 1);
    CHECK(world.cuda().live_modules() == 1);
    params.softcap = 0;
    require_ok(service->prepare(params));
    CHECK(world.compiles() == 2);
}

}  // namespace xqajit
