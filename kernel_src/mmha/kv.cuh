// K and V rows from memory to registers: lane `sub` of a token's kLanes lanes holds vectors sub, sub + kLanes, ...
#pragma once

#include "common/work.cuh"
#include "mmha/config.cuh"

namespace xqajit::device {

// The tokens of one step that this lane works on: token u is first + u * kTokensAtOnce.
struct Step {
    u32 first;
    u32 valid;  // bit u: token u lies in the block's share
};

inline Step make_step(TokenRange share, u32 tile, u32 token_lane) {
    Step step{tile * Config::kTileTokens + token_lane, 0};
#pragma unroll
    for (u32 u = 0; u < Config::kUnroll; ++u) {
        u32 const t = step.first + u * Config::kTokensAtOnce;
        step.valid |= (t >= share.begin && t < share.end ? 1u : 0u) << u;
    }
    return step;
}

// Page (or sequence) indices of a step. Where a step never leaves a page, one index serves all its tokens.
constexpr bool kOnePageAStep = Config::kBeamWidth == 1 && (Config::kPageSize == 0 || Config::kTileTokens <= Config::kPageSize);

struct Pages {
    i32 index[kOnePageAStep ? 1 : Config::kUnroll];
    i32 operator[](u32 u) const { return index[kOnePageAStep ? 0 : u]; }
};

// Reads page-table entries of valid tokens only: what lies past the used entries may be garbage.
inline Pages load_pages(KernelArgs const& args, Work const& work, i32 const* page_table, Step const& step) {
    Pages pages;
    if constexpr (kOnePageAStep) {
        pages.index[0] = static_cast<i32>(work.request);
        if constexpr (Config::kPageSize != 0) {
            pages.index[0] = 0;
            u32 const page = step.first / kTokensPerPage;
            if (step.valid != 0) pages.index[0] = page_table[work.request * args.page_table_stride + page];
        }
    } else {
#pragma unroll
        for (u32 u = 0; u < Config::kUnroll; ++u) {
            pages.index[u] = 0;
            u32 const t = step.first + u * Config::kTokensAtOnce;
            if ((step.valid >> u & 1u) == 0) continue;
            u32 const sequence = source_sequence(args, work, t);
            if constexpr (Config::kPageSize == 0) {
                pages.index[u] = static_cast<i32>(sequence);
            } else {
                pages.index[u] = page_table[sequence * args.page_table_stride + t / kTokensPerPage];
            }
        }
    }
    return pages;
}

template <u32 kVecs> struct Rows { Vec16 vec[Config::kUnroll][kVecs]; };

// Element rows of the step's tokens; zeros for tokens outside the share, whose slots may hold NaN, and for vectors past the row.
template <u32 kRowVecs, u32 kVecs>
inline Rows<kVecs> load_rows(KvTensor const& kv, u32 kv_head, Pages const& pages, Step const& step, u32 sub) {
    Rows<kVecs> rows;
    u8 const* const head = kv.base + kv_head * kv.stride_head + sub * 16;
#pragma unroll
    for (u32 u = 0; u < Config::kUnroll; ++u) {
        u32 const t = step.first + u * Config::kTokensAtOnce;
        u32 const token = Config::kPageSize == 0 ? t : t % kTokensPerPage;
        u8 const* const row = head + pages[u] * kv.stride_page + token * kv.stride_token;
#pragma unroll
        for (u32 j = 0; j < kVecs; ++j) {
            bool const inside = (kRowVecs % Config::kLanes == 0) || j * Config::kLanes + sub < kRowVecs;
            rows.vec[u][j] = Vec16{{0, 0, 0, 0}};
            if ((step.valid >> u & 1u) != 0 && inside) load_streaming(rows.vec[u][j], row + j * (Config::kLanes * 16));
        }
    }
    return rows;
}

}  // namespace xqajit::device
