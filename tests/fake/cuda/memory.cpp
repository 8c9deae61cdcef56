// Memory, events and graphs.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "functions.h"

namespace fake {
namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

CUresult fake_cuMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
    ENTER(cuMemGetInfo);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    *total = fake::kDeviceMemory;
    *free_bytes = fake::kDeviceMemory;
    for (auto const& item : s().memory) *free_bytes -= item.second.bytes;
    return CUDA_SUCCESS;
}

CUresult fake_cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
    ENTER(cuMemAlloc);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    void* const memory = bytes <= fake::kDeviceMemory ? std::aligned_alloc(256, (bytes + 255) / 256 * 256) : nullptr;
    if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<CUdeviceptr>(memory);
    s().memory[*address] = {bytes, current()};
    return CUDA_SUCCESS;
}

CUresult fake_cuMemFree(CUdeviceptr address) {
    ENTER(cuMemFree);
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    if (s().memory.erase(address) == 0) return CUDA_ERROR_INVALID_VALUE;
    std::free(host(address));
    return CUDA_SUCCESS;
}

CUresult fake_cuMemcpyHtoD(CUdeviceptr target, void const* source, std::size_t bytes) {
    ENTER(cuMemcpyHtoD);
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    if (!s().owns(target, bytes)) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(host(target), source, bytes);
    return CUDA_SUCCESS;
}

CUresult fake_cuMemcpyDtoH(void* target, CUdeviceptr source, std::size_t bytes) {
    ENTER(cuMemcpyDtoH);
    if (CUresult const result = check_capture(); result != CUDA_SUCCESS) return result;
    if (!s().owns(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(target, host(source), bytes);
    return CUDA_SUCCESS;
}

CUresult fake_cuMemcpyHtoDAsync(CUdeviceptr target, void const* source, std::size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync);
    if (!s().owns(target, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, [=] { std::memcpy(host(target), source, bytes); });
}

CUresult fake_cuMemcpyDtoHAsync(void* target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync);
    if (!s().owns(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, [=] { std::memcpy(target, host(source), bytes); });
}

CUresult fake_cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, std::size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync);
    if (!s().owns(target, bytes) || !s().owns(source, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, [=] { std::memmove(host(target), host(source), bytes); });
}

CUresult fake_cuMemsetD32Async(CUdeviceptr target, unsigned int word, std::size_t count, CUstream stream) {
    ENTER(cuMemsetD32Async);
    if (target % sizeof word != 0 || !s().owns(target, count * sizeof word)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, [=] { std::fill_n(static_cast<unsigned int*>(host(target)), count, word); });
}

CUresult fake_cuEventCreate(CUevent* event, unsigned int) {
    ENTER(cuEventCreate);
    if (!s().is_alive(current())) return CUDA_ERROR_INVALID_CONTEXT;
    *event = s().events.make();
    (*event)->context = current();
    return CUDA_SUCCESS;
}

CUresult fake_cuEventDestroy(CUevent event) {
    ENTER(cuEventDestroy);
    return s().events.erase(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fake_cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord);
    if (!s().events.has(event)) return CUDA_ERROR_INVALID_HANDLE;
    return submit(stream, [=] {
        event->recorded = true;
        event->time = std::chrono::steady_clock::now();
    });
}

CUresult fake_cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize);
    return s().events.has(event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult fake_cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime);
    if (!s().events.has(start) || !s().events.has(end) || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
    ENTER(cuGraphInstantiateWithFlags);
    if (!s().graphs.has(graph)) return CUDA_ERROR_INVALID_VALUE;
    *exec = s().graph_execs.make();
    (*exec)->nodes = graph->nodes;
    return CUDA_SUCCESS;
}

CUresult fake_cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    ENTER(cuGraphLaunch);
    if (!s().graph_execs.has(exec)) return CUDA_ERROR_INVALID_VALUE;
    return submit(stream, [nodes = exec->nodes] {
        for (FakeNode const& node : nodes) node();
    });
}

CUresult fake_cuGraphDestroy(CUgraph graph) {
    ENTER(cuGraphDestroy);
    return s().graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_cuGraphExecDestroy(CUgraphExec exec) {
    ENTER(cuGraphExecDestroy);
    return s().graph_execs.erase(exec) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace fake
