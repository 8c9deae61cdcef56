// What the host hands to every kernel: compiled by the host's C++ compiler and by NVRTC, so both must agree on each offset.
// No include, no standard type: NVRTC compiles this without any header.
#pragma once

// NVRTC has no <cstddef>; its front end spells the constant this way.
#if defined(__CUDACC_RTC__)
#define XQAJIT_OFFSET_OF(type, member) __INTADDR__(&(((type*)0)->member))
#else
#define XQAJIT_OFFSET_OF(type, member) __builtin_offsetof(type, member)
#endif

namespace xqajit::device {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// clang-format off
// One of K or V: element row (page, token, head) starts at base + page*stride_page + token*stride_token + head*stride_head.
// Contiguous KV: "page" is the sequence b*beam + w.
struct KvTensor {
    u8 const* base;        // 16-byte aligned
    i64 stride_page;       // bytes, like the other two; multiples of 16
    i64 stride_token;
    i64 stride_head;
    i32 const* page_table; // [batch*beam, max_pages], row stride KernelArgs::page_table_stride; null for contiguous KV
};
static_assert(sizeof(KvTensor) == 40);

// A CUtensorMap that the host has encoded: K or V as tokens of pages, copied in boxes (PTX ISA: cp.async.bulk.tensor).
struct alignas(64) TensorMap { u64 word[16]; };
static_assert(sizeof(TensorMap) == 128);

// How the visible tokens of a request are divided over blocks.
enum class Division : u32 {
    kStatic = 1,    // nb_sub_seq equal parts of every request
    kBalanced = 2,  // up to nb_extra_parts more parts than requests, given to the requests in proportion to their lengths
    kInvariant = 3, // edges at multiples of tokens_per_sub_seq, counted from token 0
};

// value / divisor by one multiplication: value below 2^31, divisor 1..2^31. With factor = ceil(2^(32 + shift) / divisor) and shift =
// ceil(log2(divisor)) - 1 the error is below value / 2^(32 + shift), which is too little to reach the next quotient.
struct Divisor {
    u32 factor;  // 0: the divisor is 1
    u32 shift;
};

constexpr Divisor divisor_of(u32 divisor) {
    if (divisor <= 1) return {0, 0};
    u32 shift = 0;
    while (shift < 31 && (u64{2} << shift) < divisor) ++shift;
    return {static_cast<u32>(((u64{1} << (32 + shift)) + divisor - 1) / divisor), shift};
}

constexpr u32 divide(u32 value, Divisor divisor) {
    if (divisor.factor == 0) return value;
    return static_cast<u32>(static_cast<u64>(value) * divisor.factor >> 32) >> divisor.shift;
}

// A grid of one dimension; block index = ((part * num_kv_heads + kv_head) * nb_row_blocks + row_block) * cluster_size + rank: blocks
// that read the same KV are neighbours, and read it at the same time. Parts count over all (b, beam w) pairs, request by request.
struct KernelArgs {
    void const* q;              // [rows, beam, num_q_heads, head_dim]; with INPUT_KV [batch, num_q_heads + 2 num_kv_heads, head_dim]
    void* out;                  // [rows, beam, num_q_heads, head_dim_v]
    float* lse;                 // [rows, beam, num_q_heads]; null without HAS_LSE
    i64 q_stride_row;           // elements, between consecutive (row, beam)
    i64 q_stride_head;
    i64 out_stride_row;
    i64 out_stride_head;
    KvTensor k;
    KvTensor v;                 // unused with MLA
    i64 page_table_stride;      // entries
    i32 const* seq_lens;        // [batch]
    i32 const* cu_q_len;        // [batch + 1], or null: every request has q_len rows
    u32 const* packed_mask;     // [rows, mask_stride_row]; tree only
    i64 mask_stride_row;        // words
    float const* sinks;         // [num_q_heads]; null without HAS_SINKS
    i32 const* cache_indirection; // [batch, beam, capacity]; beam > 1 only
    i32 const* ctx_lens;        // [batch]; beam > 1 only
    i64 capacity;               // tokens; row stride of cache_indirection
    float const* k_scale_ptr;   // one float; null: k_scale
    float const* v_scale_ptr;
    float const* out_scale_rcp_ptr;
    float* partials;            // [nb_slots, partial_floats(M_TILE, head_dim_v)]; null when nb_slots is 0
    u32* counters;              // [merge levels, nb_slots, cluster_size]; zero before and after every launch; null when nb_slots is 0
    float qk_scale;
    float softcap;
    float k_scale;
    float v_scale;
    float out_scale_rcp;
    u32 sliding_window;         // tokens
    u32 batch;
    u32 num_kv_heads;
    u32 q_len;                  // rows of each request, or of the longest
    u32 nb_row_blocks;          // ceil(q_len * GROUP_SIZE / M_TILE)
    u32 nb_sub_seq;             // most parts of a request
    Division division;
    u32 tokens_per_sub_seq;     // invariant division only
    u32 nb_extra_parts;         // balanced division only
    u32 nb_slots;               // places for partial results; 0 where no request has two parts
    u32 cluster_size;           // blocks that share a part and merge through one another's shared memory: 1, 2, 4 or kClusterBlocks
    Divisor by_num_kv_heads;
    Divisor by_nb_row_blocks;
    u32 max_pages;              // entries of a page-table row that exist, used or not; 0 for contiguous KV
    u32 ring_items;             // gmma: of each group of warps
    float const* cos_sin;       // [positions, ROTARY_DIM / 2, 2], 16-byte aligned; null without ROPE_STYLE
    u64* skipped_tiles;         // [2]: tiles whose V was not read, and all tiles; null: not counted. SKIP_SOFTMAX only
    float skip_threshold;       // SKIP_SOFTMAX only: divided by the length
    u32 reserved0;
};
static_assert(sizeof(KernelArgs) == 360, "host and device must agree on KernelArgs");
static_assert(XQAJIT_OFFSET_OF(KernelArgs, k) == 56);
static_assert(XQAJIT_OFFSET_OF(KernelArgs, page_table_stride) == 136);
static_assert(XQAJIT_OFFSET_OF(KernelArgs, partials) == 232);
static_assert(XQAJIT_OFFSET_OF(KernelArgs, qk_scale) == 248);
static_assert(XQAJIT_OFFSET_OF(KernelArgs, cos_sin) == 336);

// clang-format on

// Values of the public enums that reach a kernel as macros or arguments; the host asserts that they agree.
enum class Type : u32 { kFp16 = 1, kBf16 = 2, kFp8E4m3 = 3, kInt8 = 4 };
enum class SpecDec : u32 { kNone = 0, kLinear = 1, kTree = 2 };
enum class RopeStyle : u32 { kNone = 0, kNeox = 1, kGptj = 2 };

// Threads of an mmha block: what the host launches and the kernel counts on.
constexpr u32 kMmhaThreads = 128;

// Most blocks of a thread block cluster: what every GPU with clusters takes.
constexpr u32 kClusterBlocks = 8;

// One partial result, in floats: m_tile x head_dim_v unnormalised sums of p * v, then a row maximum (log2 units) and a row sum
// for each row.
constexpr u32 partial_floats(u32 m_tile, u32 head_dim_v) { return (m_tile * (head_dim_v + 2) + 3) / 4 * 4; }

}  // namespace xqajit::device
