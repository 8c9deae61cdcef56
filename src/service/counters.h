// Counters that many threads add to, on the launch path and beside it. None takes a lock or allocates.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace xqajit {

// Where a kernel was found, in the order of the search. A layer is a line here and one in kLayerNames.
enum class Layer : std::size_t {
    kMemory,  // loaded already, in this process
    kUser,    // the cache directory
    kSystem,  // a directory of XQAJIT_CACHE_LAYERS
    kBundle,  // a bundle of XQAJIT_CACHE_LAYERS, or the library's own
    kRemote,  // the server of XQAJIT_REMOTE_CACHE
};
inline constexpr char const* kLayerNames[] = {"memory", "user", "system", "bundle", "remote"};
inline constexpr std::size_t kLayers = std::size(kLayerNames);
static_assert(kLayers == static_cast<std::size_t>(Layer::kRemote) + 1, "each layer, to the last, has a name");

// What a kernel that is not loaded costs, step by step.
enum class Phase : std::size_t {
    kRead,      // an entry is read and checked: of hits alone
    kLockWait,  // another process compiles the kernel
    kCompile,
    kStore,  // the entry is written
    kLoad,   // the driver takes the image
};
inline constexpr char const* kPhaseNames[] = {"read", "lock_wait", "compile", "store", "load"};
inline constexpr std::size_t kPhases = std::size(kPhaseNames);
static_assert(kPhases == static_cast<std::size_t>(Phase::kLoad) + 1, "each phase, to the last, has a name");

// Threads add to slots of their own cache lines: one shared line would cost each of many launching threads more than a registry hit.
class StripedCounter {
public:
    void add() noexcept { slots_[thread_slot()].value.fetch_add(1, std::memory_order_relaxed); }
    std::uint64_t total() const noexcept {
        std::uint64_t sum = 0;
        for (Slot const& slot : slots_) sum += slot.value.load(std::memory_order_relaxed);
        return sum;
    }

private:
    static constexpr std::size_t kSlots = 16;
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> value{0};
    };
    static std::size_t thread_slot() noexcept {
        static std::atomic<std::size_t> next{0};
        thread_local std::size_t const slot = next.fetch_add(1, std::memory_order_relaxed) % kSlots;
        return slot;
    }
    std::array<Slot, kSlots> slots_;
};

// Upper edges of a duration's buckets; the last bucket, of all that is longer, has none. From a disk hit to a compile that hangs.
struct BucketEdge {
    char const* seconds;
    std::uint64_t nanoseconds;
};
inline constexpr BucketEdge kBucketEdges[] = {{"0.0001", 100'000},      {"0.0005", 500'000},      {"0.001", 1'000'000},
                                              {"0.01", 10'000'000},     {"0.1", 100'000'000},     {"0.5", 500'000'000},
                                              {"1.0", 1'000'000'000},   {"2.0", 2'000'000'000},   {"5.0", 5'000'000'000},
                                              {"10.0", 10'000'000'000}, {"30.0", 30'000'000'000}, {"120.0", 120'000'000'000}};
inline constexpr std::size_t kBuckets = std::size(kBucketEdges) + 1;

struct DurationCounts {
    std::array<std::uint64_t, kBuckets> buckets{};  // of each bucket alone
    std::uint64_t nanoseconds = 0;                  // of all together
    std::uint64_t count() const noexcept {
        std::uint64_t sum = 0;
        for (std::uint64_t const bucket : buckets) sum += bucket;
        return sum;
    }
};

// How often something took how long. For steps that take microseconds and more: threads share its cache lines.
class DurationHistogram {
public:
    void add(std::chrono::nanoseconds duration) noexcept {
        auto const taken = static_cast<std::uint64_t>(std::max<std::int64_t>(0, duration.count()));
        std::size_t bucket = 0;
        while (bucket < std::size(kBucketEdges) && taken > kBucketEdges[bucket].nanoseconds) ++bucket;
        buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
        nanoseconds_.fetch_add(taken, std::memory_order_relaxed);
    }
    DurationCounts counts() const noexcept {
        DurationCounts counts;
        for (std::size_t i = 0; i < kBuckets; ++i) counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
        counts.nanoseconds = nanoseconds_.load(std::memory_order_relaxed);
        return counts;
    }

private:
    std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
    std::atomic<std::uint64_t> nanoseconds_{0};
};

}  // namespace xqajit
