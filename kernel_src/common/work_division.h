// How the visible tokens of one request are divided over its sub-sequences. Host (tests, plan) and device compile this.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

struct TokenRange {
    u32 begin;
    u32 end;  // exclusive; begin == end: empty
};

// Of the 64 tokens from `first` on, those in the range: bit t is token first + t's.
constexpr u64 tokens_inside(TokenRange range, u32 first) {
    u32 const begin = range.begin > first ? range.begin - first : 0;
    u32 const to_end = range.end > first ? range.end - first : 0, end = to_end < 64 ? to_end : 64;
    return begin >= end ? 0 : (~u64{0} >> (64 - (end - begin))) << begin;
}

// Of the 64 tokens from `first` on, those that draft token i of a tree sees, of a request of len tokens whose last q_len, 64 at most, are the
// draft: itself, all before the draft, and of the draft those in `words`, its row of the mask. Only words that the draft has are read.
constexpr u64 tokens_of_tree(u32 const* words, i32 len, i32 q_len, u32 i, u32 first) {
    i32 const draft = static_cast<i32>(first) - (len - q_len);  // of `first`
    if (draft <= -64) return ~u64{0};
    u32 const begin = draft > 0 ? static_cast<u32>(draft) : 0, before = draft < 0 ? static_cast<u32>(-draft) : 0;
    u32 const to_end = begin + 64 - before, end = to_end < static_cast<u32>(q_len) ? to_end : static_cast<u32>(q_len);
    u64 drafts = 0;  // bit d: draft token begin + d
    for (u32 w = 0; w < 2; ++w) {
        u32 const word = begin / 32 + w;
        if (word * 32 >= end) continue;
        i32 const shift = static_cast<i32>(word * 32) - static_cast<i32>(begin);
        drafts |= shift >= 0 ? u64{words[word]} << shift : u64{words[word]} >> -shift;
    }
    if (i >= begin && i < end) drafts |= u64{1} << (i - begin);
    return drafts << before | ((u64{1} << before) - 1);
}

// Static and balanced shares start and end on multiples of this many tokens (the visible range's own ends apart).
constexpr u32 kShareTokens = 64;

constexpr u32 ceil_div(u32 value, u32 divisor) { return value / divisor + (value % divisor != 0 ? 1 : 0); }

// The granules that the visible range [begin, end) touches, counted from token 0.
struct Granules {
    u32 tokens;  // of one granule
    u32 first;
    u32 count;
};

constexpr Granules granules_of(Division division, u32 tokens_per_sub_seq, TokenRange visible) {
    u32 const tokens = division == Division::kInvariant ? tokens_per_sub_seq : kShareTokens;
    if (visible.begin >= visible.end) return {tokens, 0, 0};
    u32 const first = visible.begin / tokens;
    return {tokens, first, ceil_div(visible.end, tokens) - first};
}

// Balanced division cuts a request into parts with at least this many granules for each block of a part: less costs more to merge than it
// saves. A request that is too short for that has one part.
constexpr u32 kLeastGranules = 2;

// Sub-sequences that do any work: at least 1, so that an empty request still has one block to write its zeros.
constexpr u32 active_sub_seqs(Granules granules, u32 nb_sub_seq) {
    u32 const n = granules.count < nb_sub_seq ? granules.count : nb_sub_seq;
    return n == 0 ? 1 : n;
}

// The tokens of sub-sequence `index` of `active`. All shares together cover `visible` once; those past the granules are empty. Under
// invariant division one share is one granule; a request longer than the launch's max_len leaves its surplus to the last share.
constexpr TokenRange sub_seq_range(Division division, Granules granules, u32 active, u32 index, TokenRange visible) {
    if (granules.count == 0) return {visible.begin, visible.begin};
    u64 first = granules.first, last = granules.first;
    if (division == Division::kInvariant) {
        first += index;
        last = index + 1 == active ? first + granules.count - index : first + 1;
    } else {
        // Equal but for one granule, which the first ones have more; by one division, which a GPU takes long for.
        u32 const whole = granules.count / active, longer = granules.count - whole * active;
        first += static_cast<u64>(whole) * index + (index < longer ? index : longer);
        last = first + whole + (index < longer ? 1 : 0);
    }
    u64 const begin = first * granules.tokens;
    u64 const end = last * granules.tokens;
    if (begin >= visible.end) return {visible.end, visible.end};
    return {begin < visible.begin ? visible.begin : static_cast<u32>(begin),
            end > visible.end ? visible.end : static_cast<u32>(end)};
}

// The blocks of a unit merge their partials as a tree of this fan-in.
constexpr u32 kMergeFanIn = 16;

// Levels of the tree over at most `nb_partials` partials: 0 where there is nothing to merge.
constexpr u32 merge_levels(u32 nb_partials) {
    u32 levels = 0;
    for (u32 count = nb_partials; count > 1; count = ceil_div(count, kMergeFanIn)) ++levels;
    return levels;
}

// Balanced division: parts of a request with `granules` of all requests' `total`. At least one each, and no more than the
// requests and `extra` together: the shares of `extra` are rounded down. With equal lengths every request has as many. A
// part is shared by cluster_size blocks.
constexpr u32 balanced_parts(u32 granules, u64 total, u32 extra, u32 cluster_size) {
    u64 const product = static_cast<u64>(granules) * extra;
    // Most launches need no division of 64 bits, which takes a GPU hundreds of cycles.
    bool const is_small = (product | total) >> 32 == 0;
    u64 const share = total == granules ? (total == 0 ? 0 : extra)
                      : is_small        ? static_cast<u32>(product) / static_cast<u32>(total)
                                        : product / total;
    u32 const parts = 1 + static_cast<u32>(share);
    u32 const most = granules / (kLeastGranules * cluster_size);
    return parts < most ? parts : most == 0 ? 1 : most;
}

// Places for the partials of balanced division, of each head, row block and beam: only requests with two parts or more need any,
// and each of those has one part that `extra` does not count.
constexpr u32 balanced_slots(u32 extra) { return 2 * extra; }

}  // namespace xqajit::device
