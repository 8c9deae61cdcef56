// A GPU, a stream and a service, for tests that use the public interface as an engine would.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "driver/device_memory.h"
#include "xqajit/xqajit.h"

namespace xqajit::testing {

// The Status of a call of the C interface, with its text.
Status api(xqajit_status code);

class Gpu {
public:
    // Device 0's primary context. UNAVAILABLE where there is none. Settings come from the environment, but for XQAJIT_FORCE_KERNEL where
    // `forced` is set ("": nothing is forced). Those of one process are closed in the opposite order.
    static Result<std::unique_ptr<Gpu>> open(std::optional<std::string> forced = std::nullopt);
    ~Gpu();

    xqajit_service* service() const { return service_; }
    CUstream stream() const { return stream_.get(); }
    driver::GpuContext const& context() const { return context_; }
    // Everything in the context: a copy from host memory may return before its bytes have arrived, and the stream does not wait for it.
    Status synchronize() const { return context_.synchronize(); }
    // Replaces the service, so that changed environment variables count.
    Status restart_service();
    // Whether only XQAJIT_FORCE_KERNEL keeps the shape from being served. Of a family that was asked for by name a refusal is no failure; of
    // the library, whose choice is free, it is one: what the suites launch is its to compute.
    Result<bool> refused_by_force(xqajit_params const& params) const;
    // Compiles in worker processes what would else be compiled one by one. A shape that no family admits is left out.
    Status prewarm(std::span<xqajit_params const> shapes) const;

private:
    Gpu(driver::GpuContext context, driver::Stream stream, std::optional<std::string> forced)
        : context_(std::move(context)), stream_(std::move(stream)), forced_(std::move(forced)) {}
    driver::GpuContext context_;
    driver::Stream stream_;
    std::optional<std::string> forced_;
    xqajit_service* service_ = nullptr;
};

// Device memory between two red zones.
class GuardedBuffer {
public:
    // Every byte is 0xFF, which is NaN in every floating type.
    static Result<GuardedBuffer> create(std::uint64_t bytes);
    template <class T> static Result<GuardedBuffer> from(std::vector<T> const& values) {
        Result<GuardedBuffer> buffer = allocate(values.size() * sizeof(T));
        if (!buffer.ok()) return buffer;
        XQAJIT_RETURN_IF_ERROR(buffer->write_zones());
        XQAJIT_RETURN_IF_ERROR(buffer->upload(std::as_bytes(std::span<T const>(values))));
        return buffer;
    }

    std::uint64_t bytes() const { return bytes_; }
    // Aligned to 256 bytes; null when bytes() is 0.
    template <class T = void> T* data() const { return bytes_ ? memory_.as<T>(kZone) : nullptr; }
    Status upload(std::span<std::byte const> source, std::uint64_t offset = 0) const {
        return memory_.upload(source, kZone + offset);
    }
    Status download(std::span<std::byte> target, std::uint64_t offset = 0) const {
        return memory_.download(target, kZone + offset);
    }
    // The whole buffer; on the default stream, like the copies.
    Status fill(std::uint8_t byte) const;
    // INTERNAL, with the first byte that is not as it was left.
    Status check_zones(char const* name) const;

private:
    static constexpr std::uint64_t kZone = 4096;
    static Result<GuardedBuffer> allocate(std::uint64_t bytes);
    GuardedBuffer(driver::DeviceBuffer memory, std::uint64_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
    Status write_zones() const;

    driver::DeviceBuffer memory_;
    std::uint64_t bytes_ = 0;
};

}  // namespace xqajit::testing
