// Contexts, streams and capture.
#include "functions.h"

namespace fake {
namespace {

thread_local std::vector<CUcontext> context_stack;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool has_device(CUdevice device) { return device >= 0 && device < static_cast<int>(s().devices.size()); }

}  // namespace

CUcontext current() { return context_stack.empty() ? nullptr : context_stack.back(); }

bool is_default(CUstream stream) { return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD; }

CUcontext context_of(CUstream stream) {
    if (is_default(stream)) return s().is_alive(current()) ? current() : nullptr;
    return s().streams.has(stream) ? stream->context : nullptr;
}

CUresult check_capture() {
    CUresult result = CUDA_SUCCESS;
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return result;
    s().streams.for_each([&](CUstream_st& stream) {
        if (stream.capture == CU_STREAM_CAPTURE_STATUS_NONE || stream.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
        bool const everyone = capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && stream.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (!everyone && stream.capture_thread != std::this_thread::get_id()) return;
        stream.capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    });
    return result;
}

CUresult submit(CUstream stream, FakeNode node) {
    if (context_of(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!is_default(stream) && stream->capture == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!is_default(stream) && stream->capture == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        stream->nodes.push_back(std::move(node));
    else
        node();
    return CUDA_SUCCESS;
}

CUresult fake_cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Device& d = s().devices[static_cast<std::size_t>(device)];
    if (d.primary == nullptr) d.primary = s().create_context(device);
    ++d.retained;
    *context = d.primary;
    return CUDA_SUCCESS;
}

CUresult fake_cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease);
    if (!has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Device& d = s().devices[static_cast<std::size_t>(device)];
    if (d.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--d.retained == 0) s().destroy_context(d.primary);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetCurrent(CUcontext* context) {
    ENTER(cuCtxGetCurrent);
    *context = current();
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxSetCurrent(CUcontext context) {
    ENTER(cuCtxSetCurrent);
    if (context != nullptr && !s().is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context_stack.empty()) context_stack.pop_back();
    if (context != nullptr) context_stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPushCurrent(CUcontext context) {
    ENTER(cuCtxPushCurrent);
    if (!s().is_alive(context)) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxPopCurrent(CUcontext* context) {
    ENTER(cuCtxPopCurrent);
    if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = context_stack.back();
    context_stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetDevice(CUdevice* device) {
    ENTER(cuCtxGetDevice);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current()->device;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxGetId(CUcontext context, unsigned long long* id) {
    ENTER(cuCtxGetId);
    CUcontext const asked = context != nullptr ? context : current();
    if (!s().is_alive(asked)) return CUDA_ERROR_INVALID_CONTEXT;
    *id = asked->id;
    return CUDA_SUCCESS;
}

CUresult fake_cuCtxSynchronize() {
    ENTER(cuCtxSynchronize);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    return check_capture();
}

CUresult fake_cuStreamCreate(CUstream* stream, unsigned int) {
    ENTER(cuStreamCreate);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    *stream = s().streams.make();
    (*stream)->context = current();
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamDestroy(CUstream stream) {
    ENTER(cuStreamDestroy);
    return s().streams.erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fake_cuStreamSynchronize(CUstream stream) {
    ENTER(cuStreamSynchronize);
    if (context_of(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (is_default(stream)) return check_capture();
    if (stream->capture == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_SUCCESS;
    stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_cuStreamGetCtx(CUstream stream, CUcontext* context) {
    ENTER(cuStreamGetCtx);
    *context = context_of(stream);
    if (*context != nullptr) return CUDA_SUCCESS;
    return is_default(stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fake_cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    ENTER(cuStreamIsCapturing);
    if (context_of(stream) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *status = is_default(stream) ? CU_STREAM_CAPTURE_STATUS_NONE : stream->capture;
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture);
    if (is_default(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!s().streams.has(stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    stream->capture_mode = mode;
    stream->capture_thread = std::this_thread::get_id();
    stream->nodes.clear();
    return CUDA_SUCCESS;
}

CUresult fake_cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    ENTER(cuStreamEndCapture);
    *graph = nullptr;
    if (!s().streams.has(stream)) return CUDA_ERROR_INVALID_HANDLE;
    CUstreamCaptureStatus const status = stream->capture;
    stream->capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (status == CU_STREAM_CAPTURE_STATUS_NONE) return CUDA_ERROR_ILLEGAL_STATE;
    if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    *graph = s().graphs.make();
    (*graph)->nodes = std::move(stream->nodes);
    return CUDA_SUCCESS;
}

CUresult fake_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    ENTER(cuThreadExchangeStreamCaptureMode);
    std::swap(*mode, capture_mode);
    return CUDA_SUCCESS;
}

}  // namespace fake
