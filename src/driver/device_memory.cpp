#include "driver/device_memory.h"

#include <fmt/format.h>

#include <utility>

#include "driver/cuda_functions.h"

namespace xqajit::driver {
namespace {

// For objects that exist: what made them has opened the library.
CudaLibrary const& opened_cuda() { return **open_cuda(); }

Status checked(char const* call, CUresult result) {
    return result == CUDA_SUCCESS ? Status() : driver_error(opened_cuda(), call, result);
}

}  // namespace

Result<int> GpuContext::device_count() {
    Result<CudaLibrary const*> const cuda = open_cuda();
    if (!cuda.ok()) return cuda.status();
    int count = 0;
    XQAJIT_RETURN_IF_ERROR(checked("cuDeviceGetCount", (*cuda)->cuDeviceGetCount(&count)));
    return count;
}

Result<GpuContext> GpuContext::open(int ordinal) {
    Result<int> const count = device_count();
    if (!count.ok()) return count.status();
    if (ordinal < 0 || ordinal >= *count)
        return unavailable(fmt::format("there is no GPU {}: this process sees {}", ordinal, *count));
    CudaLibrary const& cuda = opened_cuda();
    CUdevice device = 0;
    XQAJIT_RETURN_IF_ERROR(checked("cuDeviceGet", cuda.cuDeviceGet(&device, ordinal)));
    GpuContext context;
    XQAJIT_RETURN_IF_ERROR(checked("cuCtxGetCurrent", cuda.cuCtxGetCurrent(&context.previous_)));
    CUcontext primary = nullptr;
    XQAJIT_RETURN_IF_ERROR(checked("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&primary, device)));
    Status status = checked("cuCtxSetCurrent", cuda.cuCtxSetCurrent(primary));
    if (status.ok()) {
        Result<ContextInfo const*> const info = current_context();
        if (info.ok()) {
            context.info_ = *info;
            return context;
        }
        status = info.status();
        cuda.cuCtxSetCurrent(context.previous_);
    }
    cuda.cuDevicePrimaryCtxRelease(device);
    return status;
}

GpuContext::GpuContext(GpuContext&& other) noexcept : info_(std::exchange(other.info_, nullptr)), previous_(other.previous_) {}

GpuContext::~GpuContext() {
    if (info_ == nullptr) return;
    CudaLibrary const& cuda = opened_cuda();
    cuda.cuCtxSetCurrent(previous_);
    cuda.cuDevicePrimaryCtxRelease(info_->device);
}

Status GpuContext::synchronize() const { return checked("cuCtxSynchronize", opened_cuda().cuCtxSynchronize()); }

Result<Stream> Stream::create() {
    Result<CudaLibrary const*> const cuda = open_cuda();
    if (!cuda.ok()) return cuda.status();
    Stream stream;
    XQAJIT_RETURN_IF_ERROR(checked("cuStreamCreate", (*cuda)->cuStreamCreate(&stream.stream_, CU_STREAM_NON_BLOCKING)));
    return stream;
}

Stream::Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}

Stream::~Stream() {
    if (stream_ != nullptr) opened_cuda().cuStreamDestroy(stream_);
}

Status Stream::synchronize() const { return checked("cuStreamSynchronize", opened_cuda().cuStreamSynchronize(stream_)); }

Result<DeviceBuffer> DeviceBuffer::allocate(std::uint64_t bytes) {
    Result<CudaLibrary const*> const cuda = open_cuda();
    if (!cuda.ok()) return cuda.status();
    DeviceBuffer buffer;
    if (bytes == 0) return buffer;
    std::string const call = fmt::format("cuMemAlloc ({} bytes)", bytes);
    XQAJIT_RETURN_IF_ERROR(checked(call.c_str(), (*cuda)->cuMemAlloc(&buffer.address_, bytes)));
    buffer.bytes_ = bytes;
    return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : address_(std::exchange(other.address_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

DeviceBuffer::~DeviceBuffer() {
    if (address_ != 0) opened_cuda().cuMemFree(address_);
}

Status DeviceBuffer::upload(std::span<std::byte const> source, std::uint64_t offset) const {
    if (offset > bytes_ || source.size() > bytes_ - offset)
        return invalid_argument(fmt::format("upload of {} bytes at offset {}: the buffer has {}", source.size(), offset, bytes_));
    if (source.empty()) return {};
    return checked("cuMemcpyHtoD", opened_cuda().cuMemcpyHtoD(address_ + offset, source.data(), source.size()));
}

Status DeviceBuffer::download(std::span<std::byte> target, std::uint64_t offset) const {
    if (offset > bytes_ || target.size() > bytes_ - offset)
        return invalid_argument(fmt::format("download of {} bytes at offset {}: the buffer has {}", target.size(), offset, bytes_));
    if (target.empty()) return {};
    return checked("cuMemcpyDtoH", opened_cuda().cuMemcpyDtoH(target.data(), address_ + offset, target.size()));
}

Status DeviceBuffer::fill32(std::uint32_t word, CUstream stream) const {
    if (bytes_ < sizeof word) return {};
    return checked("cuMemsetD32Async", opened_cuda().cuMemsetD32Async(address_, word, bytes_ / sizeof word, stream));
}

Result<Event> Event::create() {
    Result<CudaLibrary const*> const cuda = open_cuda();
    if (!cuda.ok()) return cuda.status();
    Event event;
    XQAJIT_RETURN_IF_ERROR(checked("cuEventCreate", (*cuda)->cuEventCreate(&event.event_, CU_EVENT_DEFAULT)));
    return event;
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event::~Event() {
    if (event_ != nullptr) opened_cuda().cuEventDestroy(event_);
}

Status Event::record(CUstream stream) const { return checked("cuEventRecord", opened_cuda().cuEventRecord(event_, stream)); }

Result<float> Event::elapsed_ms_since(Event const& start) const {
    XQAJIT_RETURN_IF_ERROR(checked("cuEventSynchronize", opened_cuda().cuEventSynchronize(event_)));
    float milliseconds = 0;
    XQAJIT_RETURN_IF_ERROR(checked("cuEventElapsedTime", opened_cuda().cuEventElapsedTime(&milliseconds, start.event_, event_)));
    return milliseconds;
}

Result<Graph> Graph::capture(CUstream stream, std::function<Status()> const& work) {
    Result<CudaLibrary const*> const library = open_cuda();
    if (!library.ok()) return library.status();
    CudaLibrary const& cuda = **library;
    XQAJIT_RETURN_IF_ERROR(checked("cuStreamBeginCapture", cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)));
    Status status = work();
    CUgraph captured = nullptr;
    Status const ended = checked("cuStreamEndCapture", cuda.cuStreamEndCapture(stream, &captured));
    if (status.ok()) status = ended;
    Graph graph;
    if (status.ok()) status = checked("cuGraphInstantiateWithFlags", cuda.cuGraphInstantiateWithFlags(&graph.exec_, captured, 0));
    if (captured != nullptr) cuda.cuGraphDestroy(captured);
    if (!status.ok()) return status;
    return graph;
}

Graph::Graph(Graph&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}

Graph::~Graph() {
    if (exec_ != nullptr) opened_cuda().cuGraphExecDestroy(exec_);
}

Status Graph::launch(CUstream stream) const { return checked("cuGraphLaunch", opened_cuda().cuGraphLaunch(exec_, stream)); }

}  // namespace xqajit::driver
