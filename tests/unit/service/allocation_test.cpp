// Counts what a warm launch allocates. Not built with a sanitizer: those have an operator new of their own.
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "world.h"

namespace {

thread_local bool counting = false;
thread_local bool inside = false;
std::atomic<int> allocations{0};

// The fake driver keeps records of its own: what it allocates is not ours.
bool from_fake_driver() {
    void* frames[24];
    int const count = ::backtrace(frames, 24);
    for (int i = 0; i < count; ++i) {
        Dl_info info{};
        if (::dladdr(frames[i], &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libcuda.so.1") != nullptr)
            return true;
    }
    return false;
}

}  // namespace

void* operator new(std::size_t size) {
    if (counting && !inside) {
        inside = true;
        if (!from_fake_driver()) ++allocations;
        inside = false;
    }
    if (void* memory = std::malloc(size != 0 ? size : 1)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace xqajit {

using namespace testing;

TEST_CASE("a warm launch allocates nothing", "[service]") {
    World world;  // without copies of the arguments
    world.enter(0);
    auto const service = world.service();
    XQAParams params = plain_params();
    params.sliding_window = 512;
    params.softcap = 30;
    Launch launch(params, 4);
    launch.add_workspace(*service);
    require_ok(service->run(launch.params, launch.args, nullptr));
    from_fake_driver();  // the first backtrace loads a library

    allocations = 0;
    counting = true;
    Status const status = service->run(launch.params, launch.args, nullptr);
    counting = false;
    require_ok(status);
    CHECK(allocations == 0);

    counting = true;
    auto const canary = std::make_unique<int>(1);
    counting = false;
    CHECK(allocations == 1);  // the count works
    CHECK(world.cuda().launches() == 2);
}

}  // namespace xqajit
