// Counters that many threads add to on the launch path.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace xqajit {

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

}  // namespace xqajit
