#include <array>
#include <thread>

#include "fixture.h"

namespace xqajit::driver {

TEST_CASE("a driver older than the minimum is named with both versions, and every newer one serves", "[driver]") {
    struct Old {
        int version;
        char const* text;
    };
    for (Old const old : {Old{11080, "CUDA 11.8"}, Old{11040, "CUDA 11.4"}, Old{10020, "CUDA 10.2"}}) {
        fake().set_version(old.version);
        Status const status = open_cuda().status();
        INFO(status.message());
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(status.message(), old.text));
        CHECK(contains(status.message(), "at least 12.0 is needed"));
    }
    fake().set_version(12000);  // the failure was not kept
    REQUIRE(open_cuda().ok());
    CHECK(cuda().version == 12000);
}

TEST_CASE("a driver that cannot start is unavailable, with its reason", "[driver]") {
    struct Reason {
        CUresult result;
        char const* text;
    };
    for (Reason const reason :
         {Reason{CUDA_ERROR_NO_DEVICE, "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"},
          Reason{CUDA_ERROR_UNKNOWN, "cuInit: CUDA_ERROR_UNKNOWN (999): unknown error"}}) {
        fake().fail("cuInit", reason.result);
        CHECK(open_cuda().status().code() == XQAJIT_UNAVAILABLE);
        CHECK(open_cuda().status().message() == reason.text);
    }
    fake().fail("cuInit", CUDA_SUCCESS);
    fake().fail("cuDriverGetVersion", CUDA_ERROR_STUB_LIBRARY);
    CHECK(contains(open_cuda().status().message(), "stub"));
    fake().fail("cuDriverGetVersion", CUDA_SUCCESS);
    fake().fail("cuGetProcAddress", CUDA_ERROR_NOT_FOUND);
    CHECK(contains(open_cuda().status().message(), "has no cuInit"));
    fake().fail("cuGetProcAddress", CUDA_SUCCESS);
    CHECK(open_cuda().ok());
}

TEST_CASE("the library is looked up once, whatever the number of threads that ask", "[driver]") {
    std::array<CudaLibrary const*, 8> seen{};
    std::vector<std::thread> threads;
    for (CudaLibrary const*& mine : seen) threads.emplace_back([&mine] { mine = must(open_cuda()); });
    for (std::thread& thread : threads) thread.join();
    for (CudaLibrary const* mine : seen) CHECK(mine == &cuda());
    CHECK(fake().calls("cuInit") == 1);
    fake().reset_calls();
    REQUIRE(open_cuda().ok());
    CHECK(fake().total_calls() == 0);
}

TEST_CASE("a driver error has the call, the error's name, number and description", "[driver]") {
    struct Row {
        CUresult result;
        xqajit_status code;
        char const* text;
    };
    Row const rows[] = {
        {CUDA_ERROR_INVALID_IMAGE, XQAJIT_DRIVER_ERROR, "call: CUDA_ERROR_INVALID_IMAGE (200): device kernel image is invalid"},
        {CUDA_ERROR_OUT_OF_MEMORY, XQAJIT_OUT_OF_MEMORY, "call: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"},
        {static_cast<CUresult>(1000), XQAJIT_DRIVER_ERROR, "call: an error this driver has no name for (1000): no description"},
    };
    for (Row const& row : rows) {
        Status const status = driver_error(cuda(), "call", row.result);
        CHECK(status.code() == row.code);
        CHECK(status.message() == row.text);
    }
}

}  // namespace xqajit::driver
