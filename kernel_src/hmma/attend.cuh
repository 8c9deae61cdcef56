// attend() for up to 16 query rows: each warp goes over its own steps of kTileTokens tokens, from memory straight into fragments.
#pragma once

#include "hmma/kv.cuh"

#include "common/rows.cuh"

namespace xqajit::device {

// The warp takes every nb_warps-th step of the block's share, aligned to kTileTokens from token 0. Loads are always on their way:
// the next step's K while this step's softmax and V run, the next step's V while its K runs, page indices two steps ahead.
inline void attend(KernelArgs const& args, Work const& work, u32 warp, u32 nb_warps, Lane lane, u8* memory) {
    __shared__ Query query;
    float* const partial = reinterpret_cast<float*>(memory) + warp * kPartialFloats;
    u32 first = (work.share.begin / Config::kTileTokens + warp) * Config::kTileTokens;
    u32 const stride = nb_warps * Config::kTileTokens;
    bool const any = work.share.begin < work.share.end && first < work.share.end;
    Pages pages;
    if (any) pages = load_pages(args, work, first, lane);
    QueryRows rows;
    if (warp < Config::kRowTiles) rows = load_query(args, work, warp, lane);
    KeyFragments keys;
    ValueFragments values;
    if (any) {
        load_keys(args, work, pages, first, lane, keys);
        load_values(args, work, pages, first, lane, values);
        pages = load_pages(args, work, first + stride, lane);
    }
    if (warp < Config::kRowTiles) store_query(args, rows, warp, lane, query);
    __syncthreads();
    WarpState state;
    clear(state);
    if (!any) return store_state(state, partial, lane);
    u32 const query_address = shared_address(&query.b[0][0][0][lane.eighth * 4 + lane.quarter]);
    Factors const factors = load_factors(query, lane);
    for (;;) {
        u32 const next = first + stride;
        bool const more = next < work.share.end;
        Scores const scores = multiply_keys(keys, query_address);
        if (more) load_keys(args, work, pages, next, lane, keys);
        Weights const weights = soften(args, work, factors, first, lane, scores, state);
        multiply_values(values, weights, state);
        if (!more) break;
        load_values(args, work, pages, next, lane, values);
        pages = load_pages(args, work, next + stride, lane);
        first = next;
    }
    add_shares(state);
    store_state(state, partial, lane);
}

}  // namespace xqajit::device
