#include "jit/nvrtc_library.h"

#include <dlfcn.h>

#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

TEST_CASE("an opened library tells its version and the architectures it knows", "[jit]") {
    ScopedEnvironment const version("FAKE_NVRTC_VERSION", "12.8");
    ScopedEnvironment const archs("FAKE_NVRTC_ARCHS", "80,90");
    auto const library = open_fake();
    CHECK(library->version() == "12.8");
    CHECK(library->supported_archs() == std::vector<int>{80, 90});
}

TEST_CASE("the option --no-cache is known from 12.9 on", "[jit]") {
    struct Case {
        char const* version;
        bool known;
    };
    for (Case const& each : {Case{"12.4", false}, Case{"12.8", false}, Case{"12.9", true}, Case{"13.0", true}}) {
        INFO(each.version);
        ScopedEnvironment const version("FAKE_NVRTC_VERSION", each.version);
        CHECK(open_fake()->knows_no_cache() == each.known);
    }
}

TEST_CASE("its second half is opened from its own folder, whatever the loader's path", "[jit]") {
    auto const library = open_fake();
    void* const builtins = dlopen(("libnvrtc-builtins.so." + library->version()).c_str(), RTLD_NOW | RTLD_NOLOAD);
    REQUIRE(builtins != nullptr);
    CHECK(dlsym(builtins, "fake_nvrtc_builtins") != nullptr);
    dlclose(builtins);
}

TEST_CASE("a version before 12.4 is refused with both versions", "[jit]") {
    struct Case {
        std::string version;
        bool served;
    };
    for (Case const& each :
         {Case{"11.8", false}, {"12.0", false}, {"12.3", false}, {"12.4", true}, {"12.9", true}, {"13.0", true}}) {
        INFO(each.version);
        ScopedEnvironment const version("FAKE_NVRTC_VERSION", each.version.c_str());
        auto const library = NvrtcLibrary::open(fake_identity());
        CHECK(library.ok() == each.served);
        if (each.served) continue;
        CHECK(library.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(library.status().message(), each.version + ", too old: 12.4"));
        CHECK(contains(library.status().message(), FAKE_NVRTC));
    }
}

TEST_CASE("a library that is another than the one identified is refused, in this process and in a worker", "[jit]") {
    TemporaryFolder folder;
    std::string const path = folder.path() + "/libnvrtc.so.13";
    std::string const one = read_text(FAKE_NVRTC);
    std::string two = one;
    std::size_t const note = two.find(std::string("GNU\0", 4));
    REQUIRE(note != std::string::npos);
    two[note + 4] = static_cast<char>(two[note + 4] ^ 1);
    auto const install = [&](std::string const& bytes) {  // as package managers do: the old file stays whole for those who use it
        std::string const fresh = folder.write("fresh", bytes);
        REQUIRE(rename(fresh.c_str(), path.c_str()) == 0);
        auto const identity = identify_nvrtc(path, "test");
        REQUIRE(identity.ok());
        return *identity;
    };
    auto const here = [](NvrtcIdentity const& identity) { return NvrtcLibrary::open(identity).status(); };
    auto const there = [](NvrtcIdentity const& identity) {
        return run_job_in_worker(WORKER, identity, sample_job(), std::chrono::minutes(1)).status();
    };
    NvrtcIdentity const first = install(one);
    CHECK(there(first).ok());
    NvrtcIdentity const second = install(two);
    CHECK(there(second).ok());
    for (Status const& status : {here(first), there(first)}) {
        INFO(status.message());
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        for (std::string const& part : {path, std::string("changed"), std::string("restart"), first.build.hex().substr(0, 12),
                                        second.build.hex().substr(0, 12)})
            CHECK(contains(status.message(), part));
    }
    CHECK(here(second).ok());
    // This process goes on with the library that it has loaded, whatever lies in its place by now.
    NvrtcIdentity const third = install(one);
    CHECK_FALSE(here(third).ok());
    CHECK(here(second).ok());
    CHECK(there(third).ok());
}

TEST_CASE("a file that can't be loaded, or is another library, is refused by name", "[jit]") {
    TemporaryFolder folder;
    std::string const text_file = folder.write("libnvrtc.so.13", "no library");
    for (std::string const& path : {folder.path() + "/none.so", text_file, std::string("libm.so.6")}) {
        auto const library = NvrtcLibrary::open({path, {}, "test"});
        REQUIRE(!library.ok());
        CHECK(library.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(library.status().message(), path));
    }
}
