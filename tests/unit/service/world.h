// A machine for one test: a fake driver and a fake compiler, a cache directory of its own, and what was logged.
// Settings count for the services that are made after they were set.
#pragma once

#include <string>
#include <vector>

#include "catch.h"
#include "driver/device_memory.h"
#include "fake_cuda.h"
#include "kernel_src/common/contract.h"
#include "service/service.h"

namespace xqajit::testing {

void require_ok(Status const& status);
template <class T> T must(Result<T> result) {
    require_ok(result.status());
    return std::move(result).value();
}
bool contains(std::string const& text, std::string const& part);

class World {
public:
    World();  // NVRTC, worker and cache directory are named by settings; every other setting is unset
    ~World();
    World(World const&) = delete;

    std::string const& folder() const { return folder_; }  // deleted with the world
    std::string cache_dir() const { return folder_ + "/cache"; }
    static void set(char const* name, std::string const& value);  // an environment variable; "" unsets it
    std::unique_ptr<Service> service() const { return must(Service::create("")); }

    FakeCuda const& cuda() const { return *cuda_; }
    CUcontext enter(int device) const;  // a new context, current on this thread
    static void make_current(CUcontext context);

    std::vector<std::string> compiled_targets() const;  // one a compile of the fake compiler, in any process
    std::size_t compiles() const { return compiled_targets().size(); }
    static bool nvrtc_is_loaded();  // in this process
    std::vector<std::string> cache_files() const;
    std::vector<std::string> logged(std::string const& part) const;  // lines that contain it

    // A copy of the fake compiler, with a build-id of its own for each mark but 0, takes the place of what XQAJIT_NVRTC_PATH names from
    // then on, as package managers do it: who uses the old file keeps it.
    void install_compiler(unsigned char mark) const;

    void write(std::string const& name, std::string const& text) const;  // below folder()
    std::string read(std::string const& path) const;

private:
    std::string folder_;
    FakeCuda const* cuda_ = nullptr;
};

// bf16, 32 query heads on 8, head_dim 128, pages of 64.
XQAParams plain_params();
XQAParams mla_params();  // bf16, 128 heads

// Device memory for a small launch of any shape, and its arguments with every pointer set that the shape needs.
struct Launch {
    Launch(XQAParams const& params, std::uint32_t batch, std::uint32_t max_pages = 64);
    driver::DeviceBuffer memory;
    driver::DeviceBuffer lengths;  // int32 [batch]: 1 each
    XQAParams params;
    RunArgs args;
    // A workspace of exactly what the launch can need, or of `bytes`; initialised.
    void add_workspace(Service& service, std::uint64_t bytes = 0);
    driver::DeviceBuffer workspace;
};

device::KernelArgs last_args(World const& world);  // after world.cuda().set_args_sizes({sizeof(KernelArgs), ...})

// A world with a context on device 0, whose launches keep their first parameters: of each so many bytes.
struct Running {
    explicit Running(std::vector<std::size_t> args_sizes = {sizeof(device::KernelArgs)});
    World world;
};

}  // namespace xqajit::testing
