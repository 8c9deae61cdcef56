#include "tools/measure/read_roofline.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/settings.h"
#include "jit/compile_job.h"
#include "tools/measure/read_kernel.h"

namespace xqajit::measure {
namespace {

// A megabyte of random bits over and over: not so regular as to spare the memory.
Status fill_random(driver::DeviceBuffer const& buffer) {
    constexpr std::uint64_t kChunk = 1 << 20;
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> words(kChunk / sizeof(std::uint64_t));
    std::generate(words.begin(), words.end(), [&] { return random(); });
    std::span<std::byte const> const chunk = std::as_bytes(std::span(words));
    for (std::uint64_t at = 0; at < buffer.bytes(); at += kChunk)
        XQAJIT_RETURN_IF_ERROR(buffer.upload(chunk.first(std::min(kChunk, buffer.bytes() - at)), at));
    return {};
}

}  // namespace

Result<ReadRoofline> ReadRoofline::compile(driver::GpuContext const& context) {
    Result<Settings> const settings = Settings::from_environment();
    if (!settings.ok()) return settings.status();
    Result<NvrtcIdentity> const identity = find_nvrtc(*settings);
    if (!identity.ok()) return identity.status();
    auto const nvrtc = NvrtcLibrary::open(*identity);
    if (!nvrtc.ok()) return nvrtc.status();
    std::string const target = context.info().arch.target;
    CompileJob const job{"read roofline", target, {"--gpu-architecture=" + target}, {}, {{"read.cu", kReadKernel}}};
    Result<CompiledImage> const image = run_job(**nvrtc, job);
    if (!image.ok()) return image.status();
    driver::Image const images[] = {{image->image, image->is_ptx}};
    Result<driver::LoadedKernel> kernel = driver::LoadedKernel::load(context.info(), images, "read_bytes", 0);
    if (!kernel.ok()) return kernel.status();
    return ReadRoofline(std::move(*kernel), image->nvrtc_version);
}

Result<Timing> ReadRoofline::measure(driver::GpuContext const& context, CUstream stream, std::uint64_t bytes, int copies) const {
    std::vector<driver::DeviceBuffer> buffers;
    for (int n = 0; n < copies; ++n) {
        Result<driver::DeviceBuffer> made = driver::DeviceBuffer::allocate(bytes);
        if (!made.ok()) return made.status();
        XQAJIT_RETURN_IF_ERROR(fill_random(*made));
        buffers.push_back(std::move(*made));
    }
    Result<driver::DeviceBuffer> const sink = driver::DeviceBuffer::allocate(sizeof(unsigned int));
    if (!sink.ok()) return sink.status();
    XQAJIT_RETURN_IF_ERROR(context.synchronize());
    Timing best;
    for (std::uint32_t const blocks_per_sm : {1U, 2U, 3U, 4U}) {  // of 512 threads
        driver::LaunchConfig const config{context.info().arch.sm_count * blocks_per_sm, 512, 0, false};
        Result<Timing> const timing = time_rotated(stream, copies, [&](int n) {
            ReadArgs args{buffers[static_cast<std::size_t>(n % copies)].as<void>(), bytes / 16, sink->as<unsigned int>()};
            void* parameters[] = {&args};
            return driver::launch(kernel_, config, parameters, stream);
        });
        if (!timing.ok()) return timing.status();
        if (best.us == 0 || timing->us < best.us) best = *timing;
    }
    return best;
}

}  // namespace xqajit::measure
