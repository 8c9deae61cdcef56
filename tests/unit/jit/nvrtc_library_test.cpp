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
    for (Case const& each : {Case{"12.0", false}, Case{"12.8", false}, Case{"12.9", true}, Case{"13.0", true}}) {
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

TEST_CASE("a version before 12.0 is refused with both versions", "[jit]") {
    ScopedEnvironment const version("FAKE_NVRTC_VERSION", "11.8");
    auto const library = NvrtcLibrary::open(fake_identity());
    REQUIRE(!library.ok());
    CHECK(library.status().code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(library.status().message(), "11.8, too old: 12.0"));
    CHECK(contains(library.status().message(), FAKE_NVRTC));
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
