#include "state.h"

#include <cstdlib>
#include <sstream>

namespace fake {
namespace {

std::vector<std::string> split(std::string const& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

std::string environment(char const* name, char const* default_value) {
    char const* const value = std::getenv(name);
    return value != nullptr ? value : default_value;
}

CUresult result_from(std::string const& number) { return static_cast<CUresult>(std::stoi(number)); }

// A common part of each capability.
Device device_facts(int major, int minor) {
    struct Fact {
        int sm, sm_count, smem_optin;
    };
    static constexpr Fact kFacts[] = {
        {80, 108, 166912}, {86, 84, 101376},   {87, 16, 166912},   {89, 142, 101376},
        {90, 132, 232448}, {100, 148, 232448}, {120, 170, 101376},
    };
    Fact fact{0, 100, 101376};
    for (Fact const& known : kFacts)
        if (known.sm == major * 10 + minor) fact = known;
    Device device;
    device.major = major;
    device.minor = minor;
    device.sm_count = fact.sm_count;
    device.smem_optin = fact.smem_optin;
    return device;
}

}  // namespace

State& state() {
    static State& instance = [&]() -> State& {
        State& s = *new State;
        s.version = std::stoi(environment("FAKE_CUDA_DRIVER_VERSION", "13000"));
        s.set_devices(environment("FAKE_CUDA_DEVICES", "9.0"));
        for (std::string const& item : split(environment("FAKE_CUDA_FAIL", ""), ',')) {
            std::size_t const equals = item.find('=');
            s.failures[item.substr(0, equals)] = result_from(item.substr(equals + 1));
        }
        s.fail_cubin = result_from(environment("FAKE_CUDA_FAIL_CUBIN", "0"));
        s.fail_ptx = result_from(environment("FAKE_CUDA_FAIL_PTX", "0"));
        return s;
    }();
    return instance;
}

void State::set_devices(std::string const& list) {
    devices.clear();
    for (std::string const& item : split(list, ',')) {
        std::vector<std::string> const parts = split(item, ':');
        std::vector<std::string> const capability = split(parts.at(0), '.');
        Device device = device_facts(std::stoi(capability.at(0)), std::stoi(capability.at(1)));
        if (parts.size() > 1) device.sm_count = std::stoi(parts[1]);
        devices.push_back(device);
    }
}

bool State::is_alive(CUcontext context) const {
    for (auto const& known : contexts)
        if (known.get() == context) return known->alive;
    return false;
}

bool State::owns(CUdeviceptr address, std::size_t bytes) const {
    auto after = memory.upper_bound(address);
    if (after == memory.begin()) return false;
    auto const& [start, allocation] = *--after;
    std::size_t const offset = address - start;
    return offset <= allocation.bytes && bytes <= allocation.bytes - offset;
}

CUcontext State::create_context(int device) {
    CUcontext context = nullptr;
    for (auto& known : contexts)
        if (!known->alive) context = known.get();
    if (context == nullptr) context = contexts.emplace_back(std::make_unique<CUctx_st>()).get();
    *context = CUctx_st{true, next_context_id++, device};
    return context;
}

void State::destroy_context(CUcontext context) {
    if (!is_alive(context)) return;
    context->alive = false;
    modules.erase_if([=](CUmod_st const& module) { return module.context == context; });
    streams.erase_if([=](CUstream_st const& stream) { return stream.context == context; });
    events.erase_if([=](CUevent_st const& event) { return event.context == context; });
    std::erase_if(memory, [=](auto const& item) {
        if (item.second.context != context) return false;
        std::free(reinterpret_cast<void*>(item.first));
        return true;
    });
    for (Device& device : devices)
        if (device.primary == context) {
            device.primary = nullptr;
            device.retained = 0;
        }
}

Call::Call(char const* function) : lock_(state().mutex) {
    ++state().calls[function];
    auto const failure = state().failures.find(function);
    if (failure != state().failures.end()) injected_ = failure->second;
}

}  // namespace fake

namespace {

using Lock = std::lock_guard<std::mutex>;
fake::State& s() { return fake::state(); }

constexpr FakeCuda kControls = {
    .set_devices =
        [](char const* list) {
            Lock const lock(s().mutex);
            s().set_devices(list);
        },
    .set_version =
        [](int version) {
            Lock const lock(s().mutex);
            s().version = version;
        },
    .fail =
        [](char const* function, CUresult result) {
            Lock const lock(s().mutex);
            s().failures[function] = result;
        },
    .fail_images =
        [](CUresult cubin, CUresult ptx) {
            Lock const lock(s().mutex);
            s().fail_cubin = cubin;
            s().fail_ptx = ptx;
        },
    .set_static_smem =
        [](int bytes) {
            Lock const lock(s().mutex);
            s().static_smem = bytes;
        },
    .set_args_sizes =
        [](std::vector<std::size_t> sizes) {
            Lock const lock(s().mutex);
            s().args_sizes = std::move(sizes);
        },
    .calls =
        [](char const* function) {
            Lock const lock(s().mutex);
            auto const found = s().calls.find(function);
            return found != s().calls.end() ? found->second : 0;
        },
    .reset_calls =
        [] {
            Lock const lock(s().mutex);
            s().calls.clear();
        },
    .total_calls =
        [] {
            Lock const lock(s().mutex);
            int total = 0;
            for (auto const& [function, count] : s().calls) total += count;
            return total;
        },
    .live_modules =
        [] {
            Lock const lock(s().mutex);
            return static_cast<int>(s().modules.size());
        },
    .last_ptx =
        [] {
            Lock const lock(s().mutex);
            return s().last_ptx;
        },
    .launches =
        [] {
            Lock const lock(s().mutex);
            return s().launches;
        },
    .last_launch =
        [] {
            Lock const lock(s().mutex);
            return s().last_launch;
        },
    .create_context =
        [](int device) {
            Lock const lock(s().mutex);
            return s().create_context(device);
        },
    .destroy_context =
        [](CUcontext context) {
            Lock const lock(s().mutex);
            s().destroy_context(context);
        },
    .allocated_bytes =
        [] {
            Lock const lock(s().mutex);
            std::uint64_t total = 0;
            for (auto const& item : s().memory) total += item.second.bytes;
            return total;
        },
};

}  // namespace

extern "C" FakeCuda const* fake_cuda_controls() { return &kControls; }
