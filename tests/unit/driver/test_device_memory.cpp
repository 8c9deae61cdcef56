#include <numeric>

#include "fixture.h"

namespace xqajit::driver {

TEST_CASE("a device's primary context is current while it is held", "[driver]") {
    fake().set_devices("9.0,8.6");
    CHECK(must(GpuContext::device_count()) == 2);
    CUcontext before = nullptr;
    {
        GpuContext const outer = must(GpuContext::open(0));
        {
            GpuContext inner = must(GpuContext::open(1));
            GpuContext const moved = std::move(inner);
            CHECK(moved.info().arch.sm == 86);
            CHECK(must(current_context()) == &moved.info());
            CHECK(moved.synchronize().ok());
        }
        CHECK(must(current_context()) == &outer.info());
    }
    REQUIRE(cuda().cuCtxGetCurrent(&before) == CUDA_SUCCESS);
    CHECK(before == nullptr);
    CHECK(fake().calls("cuDevicePrimaryCtxRetain") == 2);
    CHECK(fake().calls("cuDevicePrimaryCtxRelease") == 2);
    for (int ordinal : {-1, 2}) {
        Status const status = GpuContext::open(ordinal).status();
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(status.message() == "there is no GPU " + std::to_string(ordinal) + ": this process sees 2");
    }
}

TEST_CASE("a buffer holds what was put into it, up to its bounds", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    std::vector<std::uint32_t> values(100);
    std::iota(values.begin(), values.end(), 7U);
    DeviceBuffer const buffer = must(DeviceBuffer::from(values));
    CHECK(buffer.bytes() == 400);
    CHECK(buffer.address() % 256 == 0);
    std::vector<std::uint32_t> read(100);
    REQUIRE(buffer.download_to(read).ok());
    CHECK(read == values);
    std::vector<std::uint32_t> tail(10);
    REQUIRE(buffer.download_to(tail, 360).ok());
    CHECK(tail == std::vector(values.end() - 10, values.end()));

    CHECK(buffer.download_to(tail, 361).message() == "download of 40 bytes at offset 361: the buffer has 400");
    CHECK(buffer.upload(std::as_bytes(std::span(values)), 1).message() == "upload of 400 bytes at offset 1: the buffer has 400");
    CHECK(buffer.upload({}, 401).code() == XQAJIT_INVALID_ARGUMENT);

    REQUIRE(buffer.fill32(0xdeadbeef, nullptr).ok());
    REQUIRE(buffer.download_to(read).ok());
    CHECK(read == std::vector<std::uint32_t>(100, 0xdeadbeef));
}

TEST_CASE("buffers free their memory once, and an impossible size is out of memory", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    {
        DeviceBuffer first = must(DeviceBuffer::allocate(1000));
        DeviceBuffer second = must(DeviceBuffer::allocate(0));
        CHECK(second.address() == 0);
        CHECK(second.fill32(1, nullptr).ok());
        second = std::move(first);
        CHECK(second.bytes() == 1000);
        CHECK(fake().allocated_bytes() == 1000);
        DeviceBuffer const third = std::move(second);
        CHECK(fake().allocated_bytes() == 1000);
    }
    CHECK(fake().allocated_bytes() == 0);
    Status const status = DeviceBuffer::allocate(std::uint64_t{1} << 50).status();
    CHECK(status.code() == XQAJIT_OUT_OF_MEMORY);
    CHECK(contains(status.message(), "cuMemAlloc (1125899906842624 bytes)"));
}

TEST_CASE("a captured graph does its work at each replay and not before", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    Stream const stream = must(Stream::create());
    DeviceBuffer const buffer = must(DeviceBuffer::allocate(4));
    std::vector<std::uint32_t> word(1);
    auto const read = [&] {
        REQUIRE(stream.synchronize().ok());
        REQUIRE(buffer.download_to(word).ok());
        return word[0];
    };
    REQUIRE(buffer.fill32(1, stream.get()).ok());
    Graph const graph = must(Graph::capture(stream.get(), [&] { return buffer.fill32(2, stream.get()); }));
    CHECK(read() == 1);
    for (int replay = 0; replay < 2; ++replay) {
        REQUIRE(graph.launch(stream.get()).ok());
        CHECK(read() == 2);
        REQUIRE(buffer.fill32(3, stream.get()).ok());
    }
    // A failure inside ends the capture.
    Status const failed = Graph::capture(stream.get(), [] { return invalid_argument("no"); }).status();
    CHECK(failed.message() == "no");
    CHECK(must(is_capturing(stream.get())) == false);
    auto const break_capture = [&] {
        CHECK(!stream.synchronize().ok());
        return Status();
    };
    CHECK(contains(Graph::capture(stream.get(), break_capture).status().message(),
                   "cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"));
    CHECK(must(is_capturing(stream.get())) == false);
    CHECK(contains(Graph::capture(stream.get(), [&] { return stream.synchronize(); }).status().message(), "cuStreamSynchronize"));
    CHECK(must(is_capturing(stream.get())) == false);
}

TEST_CASE("events tell the time between two points of a stream", "[driver]") {
    GpuContext const context = must(GpuContext::open(0));
    Stream const stream = must(Stream::create());
    Event const start = must(Event::create());
    Event const stop = must(Event::create());
    REQUIRE(start.record(stream.get()).ok());
    CHECK(contains(stop.elapsed_ms_since(start).status().message(), "cuEventElapsedTime"));  // not recorded yet
    REQUIRE(stop.record(stream.get()).ok());
    CHECK(must(stop.elapsed_ms_since(start)) >= 0);
}

}  // namespace xqajit::driver
