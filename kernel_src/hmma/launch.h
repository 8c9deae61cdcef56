// Sizes that the host launches with and the kernel is compiled for: both compile this.
#pragma once

#include "common/contract.h"

namespace xqajit::device {

struct HmmaShape {
    u32 value_bytes;  // of V that a lane loads at once: 16, or 8 where 16 would leave half of the 8 lanes of a row without any
    u32 tile_tokens;  // tokens of a warp's step: 16 or 32
    u32 max_threads;  // of an SM at once, and so of a block: 256 or 384
};

// m_tile: 8 or 16 query rows of a block. All follow from the registers of one lane, in words.
constexpr HmmaShape hmma_shape(u32 head_dim, u32 kv_bytes, u32 m_tile) {
    u32 const row_bytes = head_dim * kv_bytes;
    u32 const value_bytes = row_bytes % 128 != 0 && row_bytes % 128 <= 64 ? 8 : 16;
    u32 const keys = 4 * ((row_bytes + 63) / 64) * 2;  // of 16 tokens: 4 lanes a row, 2 rows a lane
    u32 const values =
        value_bytes / 4 * ((row_bytes + 8 * value_bytes - 1) / (8 * value_bytes)) * 4;  // 8 lanes a row, 4 rows a lane
    u32 const row_tiles = m_tile / 8;
    u32 const step16 = keys + values + 4 * row_tiles;  // and the scores
    u32 const tile_tokens = 2 * step16 <= 80 ? 32 : 16;
    u32 const accumulators = 2 * row_tiles * values / kv_bytes;
    u32 const registers = step16 * tile_tokens / 16 + accumulators + 8 * row_tiles;
    return {value_bytes, tile_tokens, registers <= 112 ? 384u : 256u};
}

}  // namespace xqajit::device
