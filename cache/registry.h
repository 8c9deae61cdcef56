// The in-process registry: a hit takes no lock; one build a key, others wait for it; a failure is shared and then forgotten.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"

namespace xqajit::cache {

// Key: trivially copyable, ==, and `std::uint64_t hash() const`. A Value lives until the registry dies; pointers to it stay valid.
// Thread-safe. The registry must outlive every call on it.
template <class Key, class Value> class Registry {
public:
    Registry() { grow(kFirstSlots); }
    Registry(Registry const&) = delete;
    Registry& operator=(Registry const&) = delete;

    // The value if it was built, else null. No lock, no allocation.
    Value* find(Key const& key) const noexcept {
        Table const& table = *table_.load(std::memory_order_acquire);
        for (std::uint64_t slot = first_slot(key, table);; slot = (slot + 1) & table.mask) {
            Node const* const node = table.slots[slot].load(std::memory_order_acquire);
            if (node == nullptr) return nullptr;
            if (node->key == key) return node->value.get();
        }
    }

    // find(), else build() once in this process for this key, holding no lock meanwhile. Callers of the same key wait and share its
    // value or its Status; other keys go on, also from within a build. A failed build is forgotten once its waiters have it, so that
    // a later call tries again. INTERNAL if build() throws, gives a null value, or asks for its own key.
    Result<Value*> get_or_build(Key const& key, std::function<Result<std::unique_ptr<Value>>()> const& build) {
        if (Value* const value = find(key)) return value;
        std::shared_ptr<Build> mine;
        {
            std::unique_lock lock(mutex_);
            if (Value* const value = find(key)) return value;  // published since
            for (std::shared_ptr<Build> const& other : builds_)
                if (other->key == key) return wait_for(other, lock);
            mine = std::make_shared<Build>(Build{key, std::this_thread::get_id(), {}});
            builds_.push_back(mine);
        }
        std::unique_ptr<Node> node;
        Status status = caught([&] { return run(key, build, node); });

        std::lock_guard const lock(mutex_);
        Value* value = nullptr;
        if (status.ok()) status = caught([&] { return publish(std::move(node), value); });
        mine->result = status.ok() ? Result<Value*>(value) : Result<Value*>(std::move(status));
        std::erase(builds_, mine);
        finished_.notify_all();
        return *mine->result;
    }

    std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }

private:
    static constexpr std::uint64_t kFirstSlots = 64;  // a power of two, as every size

    struct Node {
        Key key;
        std::unique_ptr<Value> value;
    };
    struct Table {
        explicit Table(std::uint64_t slot_count) : mask(slot_count - 1), slots(new std::atomic<Node const*>[slot_count]()) {}
        std::uint64_t mask;
        std::unique_ptr<std::atomic<Node const*>[]> slots;
    };
    struct Build {
        Key key;
        std::thread::id builder;
        std::optional<Result<Value*>> result;  // under mutex_; set once
    };

    static std::uint64_t first_slot(Key const& key, Table const& table) {
        std::uint64_t const hash = key.hash() * 0x9E3779B97F4A7C15u;  // spreads a weak hash over the high bits
        return (hash >> 32) & table.mask;
    }

    Result<Value*> wait_for(std::shared_ptr<Build> const build, std::unique_lock<std::mutex>& lock) {
        if (build->builder == std::this_thread::get_id())
            return Status(XQAJIT_INTERNAL, "registry: the build of a key asks for that key");
        finished_.wait(lock, [&] { return build->result.has_value(); });
        return *build->result;
    }

    // Waiters hang for ever unless every way out of a build sets its result.
    template <class Step> static Status caught(Step const& step) {
        try {
            return step();
        } catch (std::exception const& error) {
            return {XQAJIT_INTERNAL, std::string("registry: a build threw: ") + error.what()};
        } catch (...) {
            return {XQAJIT_INTERNAL, "registry: a build threw"};
        }
    }

    static Status run(Key const& key, std::function<Result<std::unique_ptr<Value>>()> const& build, std::unique_ptr<Node>& node) {
        Result<std::unique_ptr<Value>> built = build();
        if (!built.ok()) return built.status();
        if (*built == nullptr) return {XQAJIT_INTERNAL, "registry: a build gave no value"};
        node.reset(new Node{key, std::move(*built)});
        return {};
    }

    // Under mutex_. The table is at most half full, so that find() always meets an empty slot.
    Status publish(std::unique_ptr<Node> node, Value*& value) {
        std::uint64_t const slot_count = tables_.back()->mask + 1;
        if (2 * (nodes_.size() + 1) > slot_count) grow(2 * slot_count);
        nodes_.push_back(std::move(node));
        insert(*tables_.back(), *nodes_.back());
        size_.store(nodes_.size(), std::memory_order_release);
        value = nodes_.back()->value.get();
        return {};
    }

    // Readers may still be in the old table: it stays until the registry dies. All old ones together are smaller than the newest.
    void grow(std::uint64_t slot_count) {
        tables_.push_back(std::make_unique<Table>(slot_count));
        for (std::unique_ptr<Node> const& node : nodes_) insert(*tables_.back(), *node);
        table_.store(tables_.back().get(), std::memory_order_release);
    }

    static void insert(Table& table, Node const& node) {
        std::uint64_t slot = first_slot(node.key, table);
        while (table.slots[slot].load(std::memory_order_relaxed) != nullptr) slot = (slot + 1) & table.mask;
        table.slots[slot].store(&node, std::memory_order_release);
    }

    std::atomic<Table const*> table_{nullptr};
    std::atomic<std::size_t> size_{0};
    std::mutex mutex_;                            // guards what follows; never held while a build runs
    std::condition_variable finished_;            // one for all keys: builds are few and long
    std::vector<std::shared_ptr<Build>> builds_;  // in flight
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<std::unique_ptr<Table>> tables_;  // the last is the published one
};

}  // namespace xqajit::cache
