#include <sys/stat.h>

#include "jit/compiler.h"
#include "jit/nvrtc_library.h"
#include "support.h"

using namespace xqajit;
using namespace xqajit::test;

namespace {

std::string const kFakeFolder = std::string(FAKE_NVRTC).substr(0, std::string(FAKE_NVRTC).rfind('/'));

void make_folders(std::string const& path) { REQUIRE(system(("mkdir -p '" + path + "'").c_str()) == 0); }

std::string real_path(std::string const& path) {
    char* const resolved = realpath(path.c_str(), nullptr);
    REQUIRE(resolved != nullptr);
    std::string const text = resolved;
    free(resolved);
    return text;
}

// Nothing of this machine's own environment.
struct BareEnvironment {
    TemporaryFolder folder;
    ScopedEnvironment loader{"LD_LIBRARY_PATH", nullptr}, home{"CUDA_HOME", nullptr}, path{"CUDA_PATH", nullptr},
        venv{"VIRTUAL_ENV", nullptr}, conda{"CONDA_PREFIX", nullptr}, user{"HOME", nullptr};
};

}  // namespace

TEST_CASE("XQAJIT_NVRTC_PATH names a library or its folder", "[jit]") {
    for (std::string const& path : {std::string(FAKE_NVRTC), kFakeFolder}) {
        auto const found = find_nvrtc(settings_with({"XQAJIT_NVRTC_PATH=" + path}));
        REQUIRE(found.ok());
        CHECK(found->path == real_path(FAKE_NVRTC));
        CHECK(found->origin == "XQAJIT_NVRTC_PATH");
    }
}

TEST_CASE("XQAJIT_NVRTC_PATH alone is searched when it is set", "[jit][J14]") {
    BareEnvironment bare;
    ScopedEnvironment const loader("LD_LIBRARY_PATH", kFakeFolder.c_str());
    std::string const text_file = bare.folder.write("libnvrtc.so", "no library");
    for (std::string const& path : {bare.folder.path(), bare.folder.path() + "/none", text_file}) {
        auto const found = find_nvrtc(settings_with({"XQAJIT_NVRTC_PATH=" + path}));
        REQUIRE(!found.ok());
        CHECK(found.status().code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(found.status().message(), path));
        CHECK(!contains(found.status().message(), kFakeFolder));
    }
}

TEST_CASE("the loader path comes before CUDA_HOME", "[jit]") {
    BareEnvironment bare;
    std::string const home = bare.folder.path() + "/cuda";
    make_folders(home + "/lib64");
    REQUIRE(symlink(FAKE_NVRTC, (home + "/lib64/libnvrtc.so.13").c_str()) == 0);
    ScopedEnvironment const cuda("CUDA_HOME", home.c_str());
    ScopedEnvironment const loader("LD_LIBRARY_PATH", (bare.folder.path() + "/empty::" + kFakeFolder).c_str());
    auto const found = find_nvrtc(settings_with({}));
    REQUIRE(found.ok());
    CHECK(found->origin == "loader path");
    CHECK(found->path == real_path(FAKE_NVRTC));
}

TEST_CASE("the highest version in a folder wins, and what is no library is passed over", "[jit]") {
    BareEnvironment bare;
    std::string const bytes = read_text(FAKE_NVRTC);
    bare.folder.write("libnvrtc.so", bytes);
    bare.folder.write("libnvrtc.so.12", bytes);
    bare.folder.write("libnvrtc.so.13", "INPUT(libnvrtc.so.13.0)");
    auto const settings = settings_with({"XQAJIT_NVRTC_PATH=" + bare.folder.path()});
    auto const twelve = find_nvrtc(settings);
    REQUIRE(twelve.ok());
    CHECK(twelve->path == real_path(bare.folder.path()) + "/libnvrtc.so.12");
    bare.folder.write("libnvrtc.so.13", bytes);
    auto const thirteen = find_nvrtc(settings);
    REQUIRE(thirteen.ok());
    CHECK(thirteen->path == real_path(bare.folder.path()) + "/libnvrtc.so.13");
}

TEST_CASE("the build is the library's content, not its place", "[jit]") {
    TemporaryFolder folder;
    std::string bytes = read_text(FAKE_NVRTC);
    auto const build_of = [&](std::string const& path) {
        auto const found = find_nvrtc(settings_with({"XQAJIT_NVRTC_PATH=" + path}));
        REQUIRE(found.ok());
        return found->build;
    };
    Digest const here = build_of(FAKE_NVRTC);
    CHECK(build_of(folder.write("libnvrtc.so.13", bytes)) == here);
    // Another build-id: the note's owner and the 20 bytes behind it.
    std::size_t const note = bytes.find(std::string("\x14\0\0\0\x03\0\0\0GNU\0", 12));
    REQUIRE(note != std::string::npos);
    bytes[note + 12] = static_cast<char>(bytes[note + 12] ^ 1);
    CHECK(build_of(folder.write("libnvrtc.so.13", bytes)) != here);
    // Without a build-id: name and size.
    bytes[note + 4] = 1;
    Digest const by_size = build_of(folder.write("libnvrtc.so.13", bytes));
    CHECK(by_size != here);
    CHECK(build_of(folder.write("libnvrtc.so.13", bytes + " ")) != by_size);
}

TEST_CASE("a wheel in the active environment is found", "[jit]") {
    BareEnvironment bare;
    std::string const lib = bare.folder.path() + "/lib/python3.11/site-packages/nvidia/cu99/lib";
    make_folders(lib);
    REQUIRE(symlink(FAKE_NVRTC, (lib + "/libnvrtc.so.13").c_str()) == 0);
    ScopedEnvironment const venv("VIRTUAL_ENV", bare.folder.path().c_str());
    auto const found = find_nvrtc(settings_with({}));
    REQUIRE(found.ok());
    if (found->path != real_path(FAKE_NVRTC)) {
        CHECK((found->origin == "loader path" ||
               found->origin == "CUDA_HOME"));  // this machine has one of its own, which comes first
    } else {
        CHECK(found->origin == "python wheel");
    }
}

TEST_CASE("finding NVRTC and making a key loads no NVRTC", "[jit][J14]") {
    if (contains(read_text("/proc/self/maps"), "libnvrtc")) return;  // an earlier case of this run has loaded one
    auto const found = find_nvrtc(settings_with({"XQAJIT_NVRTC_PATH=" + kFakeFolder}));
    REQUIRE(found.ok());
    CacheKey const key = key_for({Family::kMmha, "sm_90a", macros_for(sample_spec())}, found->build);
    CHECK(key.compiler == found->build);
    CHECK(!contains(read_text("/proc/self/maps"), "libnvrtc"));
}
