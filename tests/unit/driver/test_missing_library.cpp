// Here LD_LIBRARY_PATH leads to a folder that the test fills itself.
#include <filesystem>
#include <fstream>

#include "fixture.h"

namespace xqajit::driver {
namespace {

std::filesystem::path library_in_search_path() {
    char const* const folder = std::getenv("LD_LIBRARY_PATH");
    if (folder == nullptr) throw std::runtime_error("LD_LIBRARY_PATH is not set");
    return std::filesystem::path(folder) / "libcuda.so.1";
}

}  // namespace

TEST_CASE("a missing driver is named with the loader's reason, and found once it is there", "[driver]") {
    // A file that is no library, so that the answer is the same on a machine that has a driver.
    std::filesystem::path const library = library_in_search_path();
    std::filesystem::remove(library);
    std::ofstream(library) << "not a library\n";

    Result<CudaLibrary const*> const missing = open_cuda();
    REQUIRE(!missing.ok());
    CHECK(missing.status().code() == XQAJIT_UNAVAILABLE);
    INFO(missing.status().message());
    CHECK(contains(missing.status().message(), "libcuda.so.1 not found ("));
    CHECK(contains(missing.status().message(), library.string()));
    CHECK(contains(missing.status().message(), "an NVIDIA driver is needed to load and launch kernels"));

    CHECK(context_of(nullptr).status().code() == XQAJIT_UNAVAILABLE);
    CHECK(current_context().status().code() == XQAJIT_UNAVAILABLE);
    CHECK(is_capturing(nullptr).status().code() == XQAJIT_UNAVAILABLE);
    CHECK(GpuContext::open(0).status().code() == XQAJIT_UNAVAILABLE);
    CHECK(DeviceBuffer::allocate(16).status().code() == XQAJIT_UNAVAILABLE);
    ContextInfo const context;
    CHECK(LoadedKernel::load(context, {}, "kernel", 0).status().code() == XQAJIT_UNAVAILABLE);

    std::filesystem::remove(library);
    std::filesystem::create_symlink(XQAJIT_FAKE_CUDA, library);
    Result<CudaLibrary const*> const found = open_cuda();
    CHECK(found.status().to_string() == Status().to_string());
    std::filesystem::remove(library);
}

}  // namespace xqajit::driver
