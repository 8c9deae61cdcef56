#include <cstdlib>
#include <cstring>
#include <vector>

#include "catch.h"
#include "fake_cuda.h"
#include "tools/measure/read_roofline.h"

using namespace xqajit;
using namespace xqajit::measure;

namespace {

template <class T> T must(Result<T> result) {
    INFO(result.status().to_string());
    REQUIRE(result.ok());
    return std::move(result).value();
}

}  // namespace

TEST_CASE("copies pass four times the L2 together, and are no more than 64", "[measure]") {
    constexpr std::uint64_t kMiB = 1 << 20;
    struct Row {
        std::uint64_t bytes;
        std::uint64_t l2;
        int copies;
    };
    for (Row const& row : {Row{0, 50 * kMiB, 1}, Row{1, 50 * kMiB, 64}, Row{kMiB, 50 * kMiB, 64}, Row{4 * kMiB, 50 * kMiB, 50},
                           Row{64 * kMiB, 50 * kMiB, 4}, Row{66 * kMiB, 50 * kMiB, 4}, Row{67 * kMiB, 50 * kMiB, 3},
                           Row{200 * kMiB, 50 * kMiB, 1}, Row{4096 * kMiB, 50 * kMiB, 1}, Row{kMiB, 0, 1}}) {
        INFO(row.bytes << " bytes, L2 " << row.l2);
        CHECK(copies_past_l2(row.bytes, row.l2) == row.copies);
        if (row.copies < 64 && row.bytes != 0) CHECK(row.bytes * static_cast<std::uint64_t>(row.copies) >= 4 * row.l2);
    }
}

TEST_CASE("every copy is launched as often as any other, in turn", "[measure]") {
    driver::GpuContext const context = must(driver::GpuContext::open(0));
    driver::Stream const stream = must(driver::Stream::create());
    for (int const copies : {1, 2, 7, 64}) {
        std::vector<int> launched;
        Timing const timing = must(time_rotated(stream.get(), copies, [&](int n) -> Status {
            launched.push_back(n % copies);
            return {};
        }));
        INFO(copies);
        // A graph of one launch a copy tells how many the timed graph needs.
        REQUIRE(launched.size() == static_cast<std::size_t>(copies + timing.launches));
        CHECK(timing.launches >= copies);
        CHECK(timing.launches % copies == 0);
        CHECK(timing.replays == 24);
        for (std::size_t n = 0; n < launched.size(); ++n) REQUIRE(launched[n] == static_cast<int>(n) % copies);
        CHECK(timing.min_us <= timing.us);
        CHECK(timing.us <= timing.max_us);
    }
}

TEST_CASE("a launch that fails ends the measurement with its status", "[measure]") {
    driver::GpuContext const context = must(driver::GpuContext::open(0));
    driver::Stream const stream = must(driver::Stream::create());
    Status const status =
        time_rotated(stream.get(), 2, [](int n) { return n == 1 ? invalid_argument("the second") : Status(); }).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(status.message() == "the second");
}

TEST_CASE("the roofline reads every buffer whole, and frees them", "[measure]") {
    driver::GpuContext const context = must(driver::GpuContext::open(0));
    driver::Stream const stream = must(driver::Stream::create());
    CHECK(must(l2_bytes(context.info())) == 1 << 20);
    ReadRoofline const roofline = must(ReadRoofline::compile(context));
    CHECK(roofline.nvrtc_version() == "13.0");
    FakeCuda const& fake = *fake_cuda();
    std::uint64_t const before = fake.allocated_bytes();
    fake.set_args_sizes({24});
    Timing const timing = must(roofline.measure(context, stream.get(), 1 << 20, 3));
    CHECK(timing.launches % 3 == 0);
    CHECK(fake.allocated_bytes() == before);
    FakeCudaLaunch const last = fake.last_launch();
    CHECK(last.grid[0] == 4 * context.info().arch.sm_count);
    CHECK(last.block[0] == 512);
    std::uint64_t words = 0;
    std::memcpy(&words, last.args.at(0).data() + 8, sizeof words);
    CHECK(words == (1 << 20) / 16);
}

TEST_CASE("without a compiler there is no roofline, and the reason is said", "[measure]") {
    driver::GpuContext const context = must(driver::GpuContext::open(0));
    REQUIRE(::setenv("XQAJIT_NVRTC_PATH", "/nowhere", 1) == 0);
    Status const status = ReadRoofline::compile(context).status();
    CHECK(status.code() == XQAJIT_UNAVAILABLE);
    CHECK(status.message().find("/nowhere") != std::string::npos);
}
