// The workspaces that workspace_init() has prepared.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "cache/registry.h"

namespace xqajit {

// Device addresses are unique in a process, so that the pointer alone names a record. A record stays after release() (as one of 0
// bytes): memory grows with the number of distinct addresses ever used, and check() takes no lock.
class Workspaces {
public:
    static constexpr std::uint64_t kAlignment = 256;

    // Null, misaligned or empty: INVALID_ARGUMENT. A second call for the same address replaces the first.
    Status check_new(void const* workspace, std::uint64_t bytes) const;
    Status remember(std::uint64_t context_id, void const* workspace, std::uint64_t bytes);
    // INVALID_ARGUMENT if it is not known.
    Status release(void const* workspace);
    // Whether a launch that needs `needed` bytes may use it: initialised in this context, with this size, and large enough.
    // No lock, and no allocation where the answer is yes.
    Status check(std::uint64_t context_id, void const* workspace, std::uint64_t bytes, std::uint64_t needed) const;

private:
    struct Key {
        void const* workspace;
        bool operator==(Key const&) const = default;
        std::uint64_t hash() const {
            return (reinterpret_cast<std::uintptr_t>(workspace) >> 8) * 0x9e3779b97f4a7c15u;  // aligned: the low bits say nothing
        }
    };
    struct Record {
        std::atomic<std::uint64_t> context_id{0};
        std::atomic<std::uint64_t> bytes{0};  // 0: released
    };
    cache::Registry<Key, Record> records_;
};

}  // namespace xqajit
