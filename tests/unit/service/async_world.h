// What the tests of prepare_async() share.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "unit/cache/fixture.h"
#include "world.h"

namespace xqajit::testing {

inline constexpr std::uint32_t kLong = 200'000;  // ms: no test waits so long unless it fails

// Compiles of one family (gmma is the plain shape's) do not end while it lives. Declared after the service, whose end waits for them.
class Gate {
public:
    explicit Gate(World const& world, char const* sources = "gmma/") : path_(world.folder() + "/gate") {
        std::ofstream{path_};
        World::set("FAKE_NVRTC_ONLY", sources);
        World::set("FAKE_NVRTC_WHILE", path_);
    }
    ~Gate() { open(); }
    Gate(Gate const&) = delete;
    void open() const { std::filesystem::remove(path_); }

private:
    std::string path_;
};

inline XQAParams with(std::int32_t on_miss) {
    XQAParams params = plain_params();
    params.on_miss = on_miss;
    return params;
}
inline XQAParams falling_back() { return with(XQAJIT_ON_MISS_FALLBACK); }

template <class Condition> void wait_until(Condition const& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

inline Status run(Service& service, Launch& launch, std::int32_t on_miss) {
    launch.params.on_miss = on_miss;
    return service.run(launch.params, launch.args, nullptr);
}

inline bool launched_mmha(World const& world) { return world.cuda().last_launch().dynamic_smem == 0; }

inline nlohmann::json metrics(Service& service) {
    return nlohmann::json::parse(must(service.metrics(XQAJIT_METRICS_SERVICE, XQAJIT_METRICS_JSON)));
}

inline std::size_t threads() {
    std::filesystem::directory_iterator const tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

}  // namespace xqajit::testing
