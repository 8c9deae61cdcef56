// What the fake driver remembers. One mutex guards all of it; every entry point holds it through Call.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fake_cuda.h"

// cuda.h leaves these types open for the driver to define.
struct CUctx_st {
    bool alive = true;
    unsigned long long id = 0;
    int device = 0;
};

struct CUfunc_st {
    CUmodule module = nullptr;
    int max_dynamic_smem = 0;  // 0: not set
};

struct CUmod_st {
    CUcontext context = nullptr;
    std::vector<std::unique_ptr<CUfunc_st>> functions;
};

using FakeNode = std::function<void()>;

struct CUstream_st {
    CUcontext context = nullptr;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id capture_thread;
    std::vector<FakeNode> nodes;
};

struct CUevent_st {
    CUcontext context = nullptr;
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
};

struct CUgraph_st {
    std::vector<FakeNode> nodes;
};

struct CUgraphExec_st {
    std::vector<FakeNode> nodes;
};

namespace fake {

// Objects by handle: a handle that is not here is invalid.
template <class T> class Objects {
public:
    T* make() {
        auto object = std::make_unique<T>();
        T* const handle = object.get();
        objects_.emplace(handle, std::move(object));
        return handle;
    }
    bool has(T* handle) const { return objects_.count(handle) != 0; }
    bool erase(T* handle) { return objects_.erase(handle) != 0; }
    template <class Predicate> void erase_if(Predicate predicate) {
        std::erase_if(objects_, [&](auto const& item) { return predicate(*item.second); });
    }
    template <class Visit> void for_each(Visit visit) {
        for (auto& item : objects_) visit(*item.second);
    }
    std::size_t size() const { return objects_.size(); }

private:
    std::map<T*, std::unique_ptr<T>> objects_;
};

struct Device {
    int major = 0;
    int minor = 0;
    int sm_count = 0;
    int smem_optin = 0;
    CUcontext primary = nullptr;
    int retained = 0;
};

struct Allocation {
    std::size_t bytes = 0;
    CUcontext context = nullptr;
};

inline constexpr std::size_t kDeviceMemory = std::size_t{80} << 30;
inline constexpr int kL2Bytes = 1 << 20;

struct State {
    std::mutex mutex;
    int version = 13000;
    std::vector<Device> devices;
    std::map<std::string, CUresult> failures;
    CUresult fail_cubin = CUDA_SUCCESS;
    CUresult fail_ptx = CUDA_SUCCESS;
    int static_smem = 0;
    std::vector<std::size_t> args_sizes;

    std::map<std::string, int> calls;
    std::string last_ptx;
    std::uint64_t launches = 0;
    FakeCudaLaunch last_launch;

    unsigned long long next_context_id = 1;
    std::vector<std::unique_ptr<CUctx_st>> contexts;  // dead ones too: their addresses are reused
    Objects<CUmod_st> modules;
    Objects<CUstream_st> streams;
    Objects<CUevent_st> events;
    Objects<CUgraph_st> graphs;
    Objects<CUgraphExec_st> graph_execs;
    std::map<CUdeviceptr, Allocation> memory;

    bool is_alive(CUcontext context) const;
    bool owns(CUdeviceptr address, std::size_t bytes) const;  // inside one allocation
    CUcontext create_context(int device);
    void destroy_context(CUcontext context);
    void set_devices(std::string const& list);
};

State& state();  // reads the environment the first time

// Holds the lock for an entry point, counts the call, and says whether it was told to fail.
class Call {
public:
    explicit Call(char const* function);
    CUresult injected() const { return injected_; }

private:
    std::lock_guard<std::mutex> lock_;
    CUresult injected_ = CUDA_SUCCESS;
};

}  // namespace fake
