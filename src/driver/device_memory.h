// Owned device objects for the command's GPU subcommands and the GPU tests. The library's launch path needs none of them: it works on
// its caller's memory and stream.
// Every object belongs to the context that was current when it was made, and that context must be current (and alive) when it is used or
// destroyed. None is thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "driver/context.h"

namespace xqajit::driver {

// A device's primary context, retained and current on this thread. The destructor makes the earlier one current again and releases it.
class GpuContext {
public:
    // UNAVAILABLE where there is no driver or no such ordinal.
    static Result<GpuContext> open(int ordinal);
    static Result<int> device_count();
    GpuContext(GpuContext&& other) noexcept;
    GpuContext& operator=(GpuContext&&) = delete;
    ~GpuContext();

    ContextInfo const& info() const { return *info_; }
    Status synchronize() const;

private:
    GpuContext() = default;
    ContextInfo const* info_ = nullptr;  // null: moved from
    CUcontext previous_ = nullptr;
};

class Stream {
public:
    static Result<Stream> create();  // non-blocking: not ordered with the default stream
    Stream(Stream&& other) noexcept;
    Stream& operator=(Stream&&) = delete;
    ~Stream();

    CUstream get() const { return stream_; }
    Status synchronize() const;

private:
    Stream() = default;
    CUstream stream_ = nullptr;
};

class DeviceBuffer {
public:
    // 256-byte aligned and uninitialised. 0 bytes: address 0. OUT_OF_MEMORY names the size.
    static Result<DeviceBuffer> allocate(std::uint64_t bytes);
    template <class T> static Result<DeviceBuffer> from(std::span<T const> values) {
        Result<DeviceBuffer> buffer = allocate(values.size_bytes());
        if (!buffer.ok()) return buffer;
        XQAJIT_RETURN_IF_ERROR(buffer->upload(std::as_bytes(values)));
        return buffer;
    }
    template <class T> static Result<DeviceBuffer> from(std::vector<T> const& values) { return from(std::span<T const>(values)); }
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
    ~DeviceBuffer();

    CUdeviceptr address() const { return address_; }
    template <class T = void> T* as(std::uint64_t byte_offset = 0) const { return reinterpret_cast<T*>(address_ + byte_offset); }
    std::uint64_t bytes() const { return bytes_; }

    // Synchronous. INVALID_ARGUMENT if [offset, offset + size) is outside the buffer.
    Status upload(std::span<std::byte const> source, std::uint64_t offset = 0) const;
    Status download(std::span<std::byte> target, std::uint64_t offset = 0) const;
    template <class T> Status download_to(std::vector<T>& target, std::uint64_t offset = 0) const {  // as many as target has
        return download(std::as_writable_bytes(std::span<T>(target)), offset);
    }
    // Every whole 32-bit word, in stream order.
    Status fill32(std::uint32_t word, CUstream stream) const;

private:
    DeviceBuffer() = default;
    CUdeviceptr address_ = 0;
    std::uint64_t bytes_ = 0;
};

class Event {
public:
    static Result<Event> create();
    Event(Event&& other) noexcept;
    Event& operator=(Event&&) = delete;
    ~Event();

    Status record(CUstream stream) const;
    // Milliseconds from `start` to this event, waiting for this one.
    Result<float> elapsed_ms_since(Event const& start) const;

private:
    Event() = default;
    CUevent event_ = nullptr;
};

// Work captured from a stream, to be replayed.
class Graph {
public:
    // Runs `work` while the stream captures. A failed `work` ends the capture, drops it and returns the failure.
    static Result<Graph> capture(CUstream stream, std::function<Status()> const& work);
    Graph(Graph&& other) noexcept;
    Graph& operator=(Graph&&) = delete;
    ~Graph();

    Status launch(CUstream stream) const;

private:
    Graph() = default;
    CUgraphExec exec_ = nullptr;
};

}  // namespace xqajit::driver
