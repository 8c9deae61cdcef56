// The in-process registry: a hit takes no lock; one build a key, others wait for it; a failure is shared and then forgotten.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "base/status.h"

namespace xqajit::cache {

// Key: trivially copyable, ==, and `std::uint64_t hash() const`. A Value lives until the registry dies; pointers to it stay valid.
template <class Key, class Value> class Registry {
public:
    // The value if it was built, else null. No lock, no allocation.
    Value* find(Key const& key) const noexcept;
    // find(), else build() once in this process for this key, holding no lock meanwhile. Callers of the same key wait and share its
    // value or its Status; other keys go on. A failed build is forgotten once its waiters have it, so that a later call tries again.
    Result<Value*> get_or_build(Key const& key, std::function<Result<std::unique_ptr<Value>>()> const& build);
    std::size_t size() const noexcept;
};

} // namespace xqajit::cache
