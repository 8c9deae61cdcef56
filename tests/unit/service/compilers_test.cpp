#include <filesystem>
#include <fstream>

#include "world.h"

namespace xqajit {

using namespace testing;

TEST_CASE("without a compiler a cached kernel serves, and another is refused with the library, the places and the key",
          "[service][J14]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    world.set("XQAJIT_NVRTC_PATH", world.folder() + "/nowhere");
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    CHECK(world.logged("compiled by another NVRTC").size() == 1);

    XQAParams other = plain_params();
    other.head_dim = 64;
    Status const status = service->prepare(other);
    CHECK(status.code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(status.message(), "NVRTC"));
    CHECK(contains(status.message(), world.folder() + "/nowhere"));
    CHECK(contains(status.message(), "prewarm key "));

    world.set("XQAJIT_COMPILER_MATCH", "exact");
    CHECK(world.service()->prepare(plain_params()).code() == XQAJIT_UNAVAILABLE);
}

TEST_CASE("with another compiler the entry is compiled again, or taken where any will do", "[service]") {
    World world;
    world.enter(0);
    require_ok(world.service()->prepare(plain_params()));
    world.install_compiler(1);
    auto const exact = world.service();
    world.set("XQAJIT_COMPILER_MATCH", "any");
    auto const any = world.service();

    require_ok(any->prepare(plain_params()));
    CHECK(world.compiles() == 1);
    CHECK(any->stats().disk_hits == 1);
    require_ok(exact->prepare(plain_params()));
    CHECK(world.compiles() == 2);
    CHECK(world.cache_files().size() == 2);
}

TEST_CASE("where any compiler will do, the present one's entry comes first, then the highest version's", "[service]") {
    World world;
    world.enter(0);
    world.set("XQAJIT_COMPILE", "worker");  // a process keeps the compiler that it has loaded
    world.set("XQAJIT_COMPILER_MATCH", "exact");
    for (char const* version : {"12.9", "13.0", "12.4"}) {
        world.install_compiler(static_cast<unsigned char>(version[3]));
        world.set("FAKE_NVRTC_VERSION", version);
        require_ok(world.service()->prepare(plain_params()));
    }
    REQUIRE(world.cache_files().size() == 3);
    world.set("XQAJIT_COMPILER_MATCH", "any");
    struct Row {
        unsigned char mark;
        char const* note;  // null: the present compiler's own entry
    };
    for (Row const& row : {Row{'9', nullptr}, {'0', nullptr}, {'4', nullptr}, {'7', "compiled by another NVRTC (13.0)"}}) {
        INFO(row.mark);
        world.install_compiler(row.mark);
        std::size_t const before = world.logged("compiled by another NVRTC").size();
        require_ok(world.service()->prepare(plain_params()));
        std::vector<std::string> const lines = world.logged("compiled by another NVRTC");
        CHECK(lines.size() == before + (row.note != nullptr ? 1 : 0));
        if (row.note != nullptr) CHECK(contains(lines.back(), row.note));
    }
    CHECK(world.compiles() == 3);
}

TEST_CASE("nothing is kept under the key of a compiler that was upgraded under the process", "[service]") {
    for (char const* where : {"in_process", "worker"}) {
        INFO(where);
        World world;
        world.enter(0);
        world.install_compiler(1);
        world.set("XQAJIT_COMPILE", "worker");
        require_ok(world.service()->prepare(plain_params()));
        world.set("XQAJIT_COMPILE", where);
        auto const service = world.service();
        require_ok(service->prepare(plain_params()));  // from disk: the compiler is identified, and not loaded
        world.install_compiler(2);
        XQAParams other = plain_params();
        other.head_dim = 64;
        Status const status = service->prepare(other);
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        for (char const* part : {"libnvrtc.so.13", "has changed", "restart"}) CHECK(contains(status.message(), part));
        CHECK(world.cache_files().size() == 1);
        require_ok(service->prepare(plain_params()));
        require_ok(world.service()->prepare(other));  // as after a restart: it finds the new one
    }
}

}  // namespace xqajit
