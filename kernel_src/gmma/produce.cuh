// The role of the last warp: it finds the block's work, and keeps the rings full.
#pragma once

#include "gmma/append.cuh"

namespace xqajit::device {

constexpr u32 kBoxTokens = Config::kPageSize == 0 ? Config::kTile : min_of(Config::kPageSize, Config::kTile);
constexpr u32 kBoxes = Config::kTile / kBoxTokens;  // of an item, each of kSegments copies: one page's
constexpr u32 kBoxBytes = kBoxTokens * Config::kSegment;

// Page indices of a request, 32 at a time: lane i has that of page `first` + i, and the one 32 pages on, which has the time to come.
// Only pages that the share touches are looked up: what lies past them in the table may be anything.
struct PageWindow {
    i32 const* table;
    u32 begin, end;  // pages of the share
    u32 first;
    i32 now, next;

    i32 load(u32 page, u32 lane) const { return page + lane >= begin && page + lane < end ? table[page + lane] : 0; }

    void open(i32 const* row, TokenRange share, u32 page, u32 lane) {
        table = row;
        begin = share.begin / kTokensPerPage;
        end = ceil_div(share.end, kTokensPerPage);
        first = page;
        now = load(first, lane);
        next = load(first + 32, lane);
    }

    // Pages grow by less than 32 from call to call.
    i32 index(u32 page, u32 lane, u32 of_lane) {
        if (page >= first + 32) {
            first += 32;
            now = next;
            next = load(first + 32, lane);
        }
        return __shfl_sync(0xffffffffu, now, of_lane - first);
    }
};

// Copies the boxes that the share touches, by one lane: operands that differ by lane would be gathered in a loop. `page`: lane i's is that of
// the tile's i-th box. What is not copied keeps what was there: see load_values(), clear_outside() and widen_item().
inline void copy_tile(TensorMap const& map, Work const& work, u32 tile, i32 page, u32 item, u32 full) {
    u32 const first = tile * Config::kTile;
    i32 pages[kBoxes];
#pragma unroll
    for (u32 box = 0; box < kBoxes; ++box) pages[box] = kBoxes == 1 ? page : __shfl_sync(0xffffffffu, page, box);
    u32 const begin = work.share.begin <= first ? 0 : (work.share.begin - first) / kBoxTokens;
    u32 const end = min_of(kBoxes, (work.share.end - first + kBoxTokens - 1) / kBoxTokens);
    if (elect_one()) {
        arrive_expecting(full, (kBoxes == 1 ? 1 : end - begin) * Config::kSegments * kBoxBytes);
#pragma unroll
        for (u32 box = 0; box < kBoxes; ++box) {
            if (kBoxes > 1 && (box < begin || box >= end)) continue;
#pragma unroll
            for (u32 s = 0; s < Config::kSegments; ++s)
                copy_box(item + s * Config::kTile * Config::kSegment + box * kBoxBytes, map, s * Config::kSegmentElems,
                         work.kv_head, Config::kPageSize == 0 ? first : (first + box * kBoxTokens) % kTokensPerPage, pages[box],
                         full);
        }
    }
    __syncwarp();
}

// The longest chain of a short request: lengths -> work -> page indices -> tiles. So the work is told as soon as the page indices are
// on their way.
template <class Own> inline void produce(KernelArgs const& args, TensorMap const& k_map, TensorMap const& v_map, Place place,
                                         RingPlace const& ring, Shared& shared, Own& own, u32 lane) {
    Work const work = find_work(args, place);
    if (lane == 0) shared.work = work;
    Tiles const tiles = has_work(work) ? tiles_of(work.share) : Tiles{0, 0};
    PageWindow k_pages, v_pages;
    if (Config::kPageSize != 0 && tiles.begin < tiles.end) {
        u32 const page = tiles.begin * Config::kTile / kTokensPerPage;
        k_pages.open(args.k.page_table + work.request * args.page_table_stride, work.share, page, lane);
        v_pages.open(args.v.page_table + work.request * args.page_table_stride, work.share, page, lane);
    }
    __syncwarp();
    if (lane == 0) arrive(shared_address(&shared.work_ready));
    if constexpr (Config::kSkipSoftmax) {
        copy_judged_tiles(args, k_map, v_map, work, tiles, k_pages, v_pages, ring, own.verdicts, lane);  // see skip.cuh
        return;
    }
    NewToken new_token;
    if constexpr (Config::kInputKv) {
        if (has_new_token(work, tiles)) new_token = load_new_token(args, work, lane);
    }
    RingTurn turn{0, 1};  // of the group whose turn it is; those after it are one round behind
    u32 group = 0;
    for (u32 tile = tiles.begin; tile < tiles.end; ++tile) {
        i32 k_page = static_cast<i32>(work.request), v_page = k_page;
        if constexpr (Config::kPageSize != 0) {
            u32 const page = tile * Config::kTile / kTokensPerPage;
            u32 const of_lane = page + min_of(lane, kBoxes - 1);
            k_page = k_pages.index(page, lane, of_lane);
            v_page = v_pages.index(page, lane, of_lane);
        }
        if constexpr (Config::kInputKv) {
            if (tile + 1 == tiles.end && has_new_token(work, tiles)) append(args, work, new_token, k_page, v_page, lane);
        }
        RingTurn mine = turn;
        u32 index = ring.index(group, mine.item);
        wait_phase(ring.empty_at(index), mine.parity);
        copy_tile(k_map, work, tile, k_page, ring.item_at(index), ring.full_at(index));
        mine.next(ring);
        index = ring.index(group, mine.item);
        wait_phase(ring.empty_at(index), mine.parity);
        copy_tile(v_map, work, tile, v_page, ring.item_at(index), ring.full_at(index));
        mine.next(ring);
        if (++group == ring.nb_groups) {
            group = 0;
            turn = mine;
        }
    }
}

}  // namespace xqajit::device
