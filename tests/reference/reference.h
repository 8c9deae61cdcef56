// The float64 reference of decode attention, from the very bits a kernel reads. Written from the equations alone: it shares no code
// with the library, and reads only what a row may see.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "xqajit/xqajit.h"

namespace xqajit::testing {

using Bytes = std::vector<std::uint8_t>;

// K or V: element row (page, token, head) starts at offset + page*stride_page + token*stride_token + head*stride_head (elements).
// Contiguous KV: a "page" is a sequence. K and V may share one pool.
struct KvView {
    std::shared_ptr<Bytes> pool;
    std::int64_t offset = 0;
    std::int64_t stride_page = 0;
    std::int64_t stride_token = 0;
    std::int64_t stride_head = 0;
};

// One launch, on the host. rows: query rows of all requests, in request order.
struct ReferenceCase {
    xqajit_params params{};  // every default filled in: see with_defaults
    std::uint32_t batch = 0;
    std::uint32_t q_len = 1;
    std::uint32_t max_pages = 0;
    std::int64_t capacity = 0;  // contiguous KV and beam: tokens a sequence can hold
    Bytes q;                    // [rows, beam, num_q_heads, head_dim] with the strides below
    std::int64_t q_stride_row = 0;
    std::int64_t q_stride_head = 0;
    std::int64_t out_stride_row = 0;
    std::int64_t out_stride_head = 0;
    KvView k;
    KvView v;                                // unused with mla
    std::vector<std::int32_t> page_table;    // [batch * beam, page_table_stride]; empty for contiguous KV
    std::vector<std::int32_t> v_page_table;  // empty: page_table serves both
    std::int64_t page_table_stride = 0;
    std::vector<std::int32_t> seq_lens;
    std::vector<std::int32_t> cu_q_len;      // [batch + 1], or empty: every request has q_len rows
    std::vector<std::uint32_t> packed_mask;  // [rows, mask_stride_row]; tree only
    std::int64_t mask_stride_row = 0;
    std::vector<float> sinks;
    std::vector<std::int32_t> cache_indirection;  // [batch, beam, capacity]; beam > 1 only
    std::vector<std::int32_t> ctx_lens;           // [batch]; beam > 1 only
    float k_scale = 1;
    float v_scale = 1;
    float out_scale_rcp = 1;
    Bytes qkv;  // [batch, num_q_heads + 2 num_kv_heads, head_dim]; input_kv only, where q is empty
    std::int64_t qkv_stride_row = 0;
    std::int64_t qkv_stride_head = 0;
    std::vector<float> cos_sin;  // [max_pos, rotary_dim / 2, 2]; rope_style only
    std::int64_t max_pos = 0;

    std::uint32_t group() const { return params.num_q_heads / params.num_kv_heads; }
    std::int64_t first_row(std::uint32_t request) const;  // request == batch: all rows
    std::int64_t rows_of(std::uint32_t request) const { return first_row(request + 1) - first_row(request); }
    std::int64_t rows() const { return first_row(batch); }
};

// Fills the defaults that a zeroed field stands for.
xqajit_params with_defaults(xqajit_params params);

// Tokens that row i of a request sees, ascending.
std::vector<std::int64_t> visible_tokens(ReferenceCase const& c, std::uint32_t request, std::int64_t i);
// Offset (elements) of K's or V's row for a token that beam w of a request sees.
std::int64_t kv_row(ReferenceCase const& c, bool of_v, std::uint32_t request, std::uint32_t w, std::int64_t token,
                    std::uint32_t kv_head);

struct Block {
    std::uint32_t request = 0;
    std::uint32_t kv_head = 0;
};

// Every (row, beam, head of the group) of one (request, kv head), in that order.
struct BlockResult {
    Block block;
    std::vector<double> out;  // [rows, beam, group, head_dim_v], before the scale of an fp8 output
    std::vector<double> lse;  // [rows, beam, group]
    // [rows, beam, group]: the largest sum of |q_d * k_d| (scaled) over the visible tokens: what float32 rounding is relative to.
    std::vector<double> magnitude;
    // As out and lse, with q and the weights rounded to e4m3 (see round_query and round_weight); empty unless the case has numeric fp8.
    std::vector<double> fp8_out;
    std::vector<double> fp8_lse;
    // As fp8_out with one weight of each row rounded to its other neighbour: of those that the scores' own errors may take across the middle,
    // the one that moves the row most.
    std::vector<double> fp8_other;
};

std::vector<Block> all_blocks(ReferenceCase const& c);
// With input_kv, of the plain launch that append.h makes of it. threads: 0 takes one a core.
std::vector<BlockResult> compute_reference(ReferenceCase const& c, std::span<Block const> blocks, unsigned threads = 0);

}  // namespace xqajit::testing
