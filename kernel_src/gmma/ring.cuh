// The ring between the warp that copies and those that compute, and what the two roles tell each other.
//
// Each group of four warps has items of its own: K, V, K, V ... of every n-th tile of the block's share. An item is one tile's K or V:
//   [segment][kTile tokens][kSegment bytes], vectors of 16 bytes swizzled by the copy: see kv.cuh
#pragma once

#include "gmma/config.cuh"

#include "common/barrier.cuh"
#include "common/work.cuh"

namespace xqajit::device {

struct Shared {
    u64 full[Config::kMostItems];   // the copying warp and the item's bytes arrive
    u64 empty[Config::kMostItems];  // the four warps that read the item arrive
    u64 work_ready;                 // the copying warp arrives when `work` is there
    u64 query_ready;                // each thread that has stored its part of q
    Work work;
    u32 arrivals;
};

// A warp's lanes have read an item, which may be filled anew.
inline void free_item(u32 empty, bool tells) {
    order_before_copies();
    __syncwarp();
    if (tells) arrive(empty);
}

// Where the block's rings lie.
struct RingPlace {
    u32 items;  // shared address of group 0's first
    u32 full;   // of its barriers
    u32 empty;
    u32 nb_items;   // of one group
    u32 nb_groups;  // that take turns

    u32 index(u32 group, u32 item) const { return group * nb_items + item; }
    u32 item_at(u32 index) const { return items + index * Config::kItemBytes; }
    u32 full_at(u32 index) const { return full + index * 8; }
    u32 empty_at(u32 index) const { return empty + index * 8; }
};

// `memory`: shared address of the first item.
inline RingPlace place_ring(KernelArgs const& args, u32 memory, Shared& shared) {
    return {memory, shared_address(shared.full), shared_address(shared.empty), args.ring_items, blockDim.x / 128};
}

// A role's place in a ring. Both go through it in step: consumers wait for the phase of this parity to end, the producer for the one before,
// whose parity is the other.
struct RingTurn {
    u32 item = 0;
    u32 parity = 0;

    void next(RingPlace const& ring) {
        if (++item == ring.nb_items) item = 0, parity ^= 1;
    }
};

// Tiles that a share touches, counted from token 0.
struct Tiles {
    u32 begin, end;
};

inline Tiles tiles_of(TokenRange share) {
    if (share.begin >= share.end) return {0, 0};
    return {share.begin / Config::kTile, (share.end - 1) / Config::kTile + 1};
}

}  // namespace xqajit::device
