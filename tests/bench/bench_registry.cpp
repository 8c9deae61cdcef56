// Host costs of a hit, as one JSON line: registry, one thread and eight; disk, a 128 KB entry read and verified.
// Times of threads are CPU times of each thread, so that eight threads on fewer cores do not count their turns of waiting.
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "cache/disk_store.h"
#include "cache/registry.h"

using namespace xqajit;
using namespace xqajit::cache;

namespace {

constexpr std::size_t kKeys = 64;
constexpr int kFinds = 5'000'000;
constexpr int kLoads = 2'000;
constexpr std::size_t kImageBytes = 128 << 10;

// About as long as a packed shape and its context.
struct Key {
    std::array<std::uint64_t, 8> words{};
    bool operator==(Key const&) const = default;
    std::uint64_t hash() const {
        std::uint64_t value = 0;
        for (std::uint64_t const word : words) value = (value ^ word) * 0x9E3779B97F4A7C15u;
        return value ^ value >> 32;
    }
};

Key key_of(std::uint64_t number) { return {{number, 128, 8, 1, 32, number * 3, 0, 7}}; }

double thread_nanoseconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

// Mean over the threads of the CPU time of one find().
double nanoseconds_per_hit(Registry<Key, int> const& registry, std::size_t thread_count) {
    std::vector<double> nanoseconds(thread_count);
    std::vector<int> missed(thread_count);
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < thread_count; ++thread)
        threads.emplace_back([&, thread] {
            std::vector<Key> keys;
            for (std::size_t i = 0; i < kKeys; ++i) keys.push_back(key_of((i * 29 + thread) % kKeys));
            int misses = 0;
            double const start = thread_nanoseconds();
            for (int i = 0; i < kFinds; ++i) misses += registry.find(keys[static_cast<std::size_t>(i) % kKeys]) == nullptr;
            nanoseconds[thread] = (thread_nanoseconds() - start) / kFinds;
            missed[thread] = misses;
        });
    for (std::thread& thread : threads) thread.join();
    double sum = 0;
    for (std::size_t thread = 0; thread < thread_count; ++thread) {
        if (missed[thread] != 0) return -1;
        sum += nanoseconds[thread];
    }
    return sum / static_cast<double>(thread_count);
}

// Median wall time of one load(), in ms; the file is in the page cache. Negative where the store does not hit.
double milliseconds_per_load(std::string const& directory) {
    auto const store = DiskStore::open({directory, "argument"});
    Entry const entry{{digest_of("body"), digest_of("compiler")}, "{}", false, std::string(kImageBytes, 'x')};
    if (!store->store(entry).ok()) return -1;
    std::vector<double> milliseconds;
    for (int i = 0; i < kLoads; ++i) {
        auto const start = std::chrono::steady_clock::now();
        if (!store->load(entry.key)) return -1;
        milliseconds.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(milliseconds.begin(), milliseconds.begin() + kLoads / 2, milliseconds.end());
    return milliseconds[kLoads / 2];
}

}  // namespace

int main() {
    Registry<Key, int> registry;
    for (std::size_t i = 0; i < kKeys; ++i)
        (void)registry.get_or_build(key_of(i), [] { return Result<std::unique_ptr<int>>(std::make_unique<int>(1)); });
    double const one = nanoseconds_per_hit(registry, 1);
    double const eight = nanoseconds_per_hit(registry, 8);

    std::string directory = (std::filesystem::temp_directory_path() / "xqajit-bench-XXXXXX").string();
    if (::mkdtemp(directory.data()) == nullptr) return 1;
    double const load = milliseconds_per_load(directory);
    std::filesystem::remove_all(directory);

    std::printf(
        "{\"schema\": \"xqajit.bench.host/1\", \"cores\": %u, \"registry_hit_ns\": %.1f, \"registry_hit_8_threads_ns\": %.1f, "
        "\"disk_hit_128k_ms\": %.4f}\n",
        std::thread::hardware_concurrency(), one, eight, load);
    return one < 0 || eight < 0 || load < 0 ? 1 : 0;
}
