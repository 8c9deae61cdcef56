#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "params/versioned.h"
#include "params/xqa_params.h"

namespace xqajit {
namespace {

constexpr std::int64_t kMaxSpan = std::int64_t{1} << 61;  // bytes along one dimension: all dimensions together stay within int64
constexpr std::int64_t kRowAlignment = 16;                // bytes; rows are read 16 bytes at a time
constexpr std::uintptr_t kWorkspaceAlignment = 256;

// What a launch touches, derived once.
struct Launch {
    XQAParams const& params;
    std::int64_t sequences;  // batch * beam: rows of the page table; 0: nothing is touched
    std::int64_t rows;       // query rows times beam; an upper bound with ragged drafts
    bool paged;
    bool mla;
    bool reads_cache;  // max_len > 0
};

bool fits(std::int64_t extent, std::int64_t stride, std::int64_t bytes) {
    return extent <= 1 || static_cast<__int128>(extent - 1) * stride * bytes <= kMaxSpan;
}

// --- plain values ---

Status check_scale(char const* name, float& value, bool scaled, char const* without) {
    if (!std::isfinite(value) || value < 0)
        return invalid_argument(fmt::format("{} is {}: accepted are finite values > 0, or 0 for 1", name, value));
    if (!scaled && value != 0 && value != 1)
        return invalid_argument(fmt::format("{} is {}: accepted are 0, 1 {}", name, value, without));
    if (value == 0) value = 1;
    return {};
}

Status fill_values(XQAParams const& params, RunArgs& args) {
    XQAJIT_RETURN_IF_ERROR(check_batch("batch", args.batch));
    if (args.q_len == 0) args.q_len = 1;
    if (args.q_len > params.q_len)
        return invalid_argument(fmt::format("q_len is {}: accepted are 1..{}, the q_len of the shape", args.q_len, params.q_len));
    if (args.reserved0 != 0) return invalid_argument(fmt::format("reserved0 is {}: accepted is 0", args.reserved0));
    bool const scaled_kv = params.kv_dtype != params.q_dtype;
    XQAJIT_RETURN_IF_ERROR(check_scale("k_scale", args.k_scale, scaled_kv, "with 16-bit KV"));
    XQAJIT_RETURN_IF_ERROR(check_scale("v_scale", args.v_scale, scaled_kv, "with 16-bit KV"));
    return check_scale("out_scale_rcp", args.out_scale_rcp, params.out_dtype == XQAJIT_DTYPE_FP8_E4M3, "without fp8 output");
}

Status fill_lengths(XQAParams const& params, RunArgs& args) {
    XQAJIT_RETURN_IF_ERROR(check_tokens("capacity", args.capacity));
    bool const paged = params.page_size > 0;
    std::uint64_t const held = paged ? static_cast<std::uint64_t>(args.max_pages) * params.page_size : args.capacity;
    std::uint64_t const most = std::min(held, kMaxTokens);
    if (args.max_len > most)
        return invalid_argument(fmt::format("max_len is {}: accepted are 0..{}, what {} hold", args.max_len, most,
                                            paged ? fmt::format("{} pages of {} tokens", args.max_pages, params.page_size)
                                                  : fmt::format("a capacity of {} tokens can", args.capacity)));
    if (args.max_len == 0) args.max_len = most;
    if (params.beam_width > 1 && args.capacity < args.max_len)
        return invalid_argument(fmt::format("capacity is {}: accepted are {}..{} with beam_width {}, max_len and more",
                                            args.capacity, args.max_len, kMaxTokens, params.beam_width));
    bool const rotates = params.rope_style != XQAJIT_ROPE_NONE;
    if (rotates && (args.max_pos < args.max_len || args.max_pos > kMaxTokens))
        return invalid_argument(
            fmt::format("max_pos is {}: accepted are {}..{}, max_len and more", args.max_pos, args.max_len, kMaxTokens));
    if (!rotates && args.max_pos != 0)
        return invalid_argument(fmt::format("max_pos is {}: accepted is 0 without rope_style in the shape", args.max_pos));
    return {};
}

// --- pointers ---

enum class Need { kRequired, kOptional, kForbidden };

Status check_pointer(char const* name, void const* pointer, std::uintptr_t alignment, Need need, char const* forbidden) {
    if (pointer == nullptr && need == Need::kRequired)
        return invalid_argument(fmt::format("{} is null: accepted are device pointers", name));
    if (pointer != nullptr && need == Need::kForbidden)
        return invalid_argument(fmt::format("{} is set: accepted is null {}", name, forbidden));
    auto const address = reinterpret_cast<std::uintptr_t>(pointer);
    if (address % alignment != 0)
        return invalid_argument(fmt::format("{} is {:#x}: accepted are addresses on {} bytes", name, address, alignment));
    return {};
}

Status check_pointers(Launch const& launch, RunArgs const& args) {
    XQAParams const& params = launch.params;
    auto const only_if = [](bool condition, Need need = Need::kRequired) { return condition ? need : Need::kForbidden; };
    Need const cache = launch.reads_cache ? Need::kRequired : Need::kOptional;
    bool const tree = params.spec_dec == XQAJIT_SPEC_DEC_TREE;
    bool const appends = params.input_kv != 0;
    Need const beam = only_if(params.beam_width > 1, cache);
    Need const kv_scale = only_if(params.kv_dtype != params.q_dtype, Need::kOptional);
    struct Row {
        char const* name;
        void const* pointer;
        std::uintptr_t alignment;
        Need need;
        char const* forbidden;
    };
    // clang-format off
    Row const rows[] = {
        {"q", args.q, kRowAlignment, only_if(!appends), "with input_kv, whose qkv has it"},
        {"out", args.out, kRowAlignment, Need::kRequired, ""},
        {"lse", args.lse, 4, only_if(params.lse != 0), "without lse in the shape"},
        {"k", args.k, kRowAlignment, cache, ""},
        {"v", args.v, kRowAlignment, only_if(!launch.mla, cache), "with mla"},
        {"page_table", args.page_table, 4, only_if(launch.paged, cache), "with page_size 0"},
        {"v_page_table", args.v_page_table, 4, only_if(launch.paged && !launch.mla, Need::kOptional), "with page_size 0 or mla"},
        {"seq_lens", args.seq_lens, 4, Need::kRequired, ""},
        {"cu_q_len", args.cu_q_len, 4, only_if(params.spec_dec != XQAJIT_SPEC_DEC_NONE, Need::kOptional), "without spec_dec"},
        {"packed_mask", args.packed_mask, 4, only_if(tree), "without spec_dec tree"},
        {"sinks", args.sinks, 4, only_if(params.sinks != 0), "without sinks in the shape"},
        {"cache_indirection", args.cache_indirection, 4, beam, "with beam_width 1"},
        {"ctx_lens", args.ctx_lens, 4, beam, "with beam_width 1"},
        {"k_scale_ptr", args.k_scale_ptr, 4, kv_scale, "with 16-bit KV"},
        {"v_scale_ptr", args.v_scale_ptr, 4, kv_scale, "with 16-bit KV"},
        {"out_scale_rcp_ptr", args.out_scale_rcp_ptr, 4, only_if(params.out_dtype == XQAJIT_DTYPE_FP8_E4M3, Need::kOptional), "without fp8 output"},
        {"qkv", args.qkv, kRowAlignment, only_if(appends), "without input_kv in the shape"},
        {"cos_sin", args.cos_sin, kRowAlignment, only_if(params.rope_style != XQAJIT_ROPE_NONE, cache), "without rope_style in the shape"},
        {"workspace", args.workspace, kWorkspaceAlignment, Need::kOptional, ""},
        {"skipped_tiles", args.skipped_tiles, 8, only_if(params.skip_softmax != 0, Need::kOptional), "without skip_softmax in the shape"},
    };
    // clang-format on
    for (Row const& row : rows) {
        Need const need = launch.sequences == 0 && row.need == Need::kRequired ? Need::kOptional : row.need;
        XQAJIT_RETURN_IF_ERROR(check_pointer(row.name, row.pointer, row.alignment, need, row.forbidden));
    }
    return {};
}

// --- strides ---

Status stride_error(char const* name, std::int64_t stride, std::int64_t least, std::int64_t bytes, char const* alternative) {
    return invalid_argument(
        fmt::format("{} is {} elements of {} bytes: accepted are multiples of {} ({} bytes) from {} up, or 0 {}", name, stride,
                    bytes, kRowAlignment / bytes, kRowAlignment, least, alternative));
}

Status check_unused(char const* name, std::int64_t stride, char const* why) {
    if (stride == 0) return {};
    return invalid_argument(fmt::format("{} is {}: accepted is 0 {}", name, stride, why));
}

Status span_error(char const* name, std::int64_t value, std::int64_t extent) {
    return invalid_argument(
        fmt::format("{} is {}: accepted are values with which {} rows span at most 2^61 bytes", name, value, extent));
}

// q, qkv and out.
Status fill_row_strides(char const* row_name, char const* head_name, Launch const& launch, std::int64_t heads, std::int64_t dim,
                        std::int64_t bytes, std::int64_t& row, std::int64_t& head) {
    auto const legal = [&](std::int64_t stride) { return stride >= dim && stride % (kRowAlignment / bytes) == 0; };
    if (head == 0) head = dim;
    if (!legal(head)) return stride_error(head_name, head, dim, bytes, "for packed");
    if (!fits(heads + 1, head, bytes)) return span_error(head_name, head, heads);
    if (row == 0) row = heads * head;
    if (!legal(row)) return stride_error(row_name, row, dim, bytes, "for packed");
    return fits(launch.rows, row, bytes) ? Status() : span_error(row_name, row, launch.rows);
}

struct CacheStrides {
    char const* page_name;
    char const* token_name;
    char const* head_name;
    std::int64_t& page;
    std::int64_t& token;
    std::int64_t& head;
};

// K or V. dim: elements of a row.
Status fill_cache_strides(Launch const& launch, std::int64_t capacity, std::int64_t dim, CacheStrides strides) {
    std::int64_t const bytes = std::max<std::int64_t>(1, dtype_bytes(launch.params.kv_dtype));
    std::int64_t const heads = launch.params.num_kv_heads;
    std::int64_t const tokens = launch.paged ? launch.params.page_size : capacity;
    std::int64_t const pages = launch.paged ? static_cast<std::int64_t>(kMaxTokens) + 1 : launch.sequences;
    if (strides.page == 0 && strides.token == 0 && strides.head == 0) {
        strides.head = dim;
        strides.token = heads * dim;
        strides.page = tokens * strides.token;
        if (fits(pages, strides.page, bytes)) return {};
        return launch.paged ? span_error(strides.page_name, strides.page, pages) : span_error("capacity", capacity, pages);
    }
    struct Row {
        char const* name;
        std::int64_t stride;
        std::int64_t extent;
    };
    for (Row const& row : {Row{strides.page_name, strides.page, pages}, Row{strides.token_name, strides.token, tokens},
                           Row{strides.head_name, strides.head, heads}}) {
        bool const unused = row.stride == 0 && row.extent <= 1;
        std::int64_t const step = kRowAlignment / bytes;
        if (!unused && (row.stride <= 0 || row.stride % step != 0))
            return stride_error(row.name, row.stride, step, bytes, "for all three");
        if (!fits(row.extent, row.stride, bytes)) return span_error(row.name, row.stride, row.extent);
    }
    return {};
}

// Tables of 4-byte entries. 0 is the shortest row.
Status fill_table_stride(char const* name, std::int64_t shortest, std::int64_t rows, std::int64_t& stride) {
    if (stride == 0) stride = shortest;
    if (stride < shortest)
        return invalid_argument(fmt::format("{} is {}: accepted are {} and more, or 0 for packed", name, stride, shortest));
    return fits(rows, stride, 4) ? Status() : span_error(name, stride, rows);
}

Status fill_strides(Launch const& launch, RunArgs& args) {
    XQAParams const& params = launch.params;
    auto const capacity = static_cast<std::int64_t>(args.capacity);
    std::int64_t const heads = params.num_q_heads, q_bytes = dtype_bytes(params.q_dtype), out_bytes = dtype_bytes(params.out_dtype);
    if (params.input_kv != 0) {
        constexpr char kWhy[] = "with input_kv, whose qkv has q";
        XQAJIT_RETURN_IF_ERROR(check_unused("q_stride_row", args.q_stride_row, kWhy));
        XQAJIT_RETURN_IF_ERROR(check_unused("q_stride_head", args.q_stride_head, kWhy));
        std::int64_t const all_heads = heads + 2 * std::int64_t{params.num_kv_heads};
        XQAJIT_RETURN_IF_ERROR(fill_row_strides("qkv_stride_row", "qkv_stride_head", launch, all_heads, params.head_dim, q_bytes,
                                                args.qkv_stride_row, args.qkv_stride_head));
    } else {
        constexpr char kWhy[] = "without input_kv in the shape";
        XQAJIT_RETURN_IF_ERROR(check_unused("qkv_stride_row", args.qkv_stride_row, kWhy));
        XQAJIT_RETURN_IF_ERROR(check_unused("qkv_stride_head", args.qkv_stride_head, kWhy));
        XQAJIT_RETURN_IF_ERROR(fill_row_strides("q_stride_row", "q_stride_head", launch, heads, params.head_dim, q_bytes,
                                                args.q_stride_row, args.q_stride_head));
    }
    XQAJIT_RETURN_IF_ERROR(fill_row_strides("out_stride_row", "out_stride_head", launch, heads, params.head_dim_v, out_bytes,
                                            args.out_stride_row, args.out_stride_head));
    XQAJIT_RETURN_IF_ERROR(fill_cache_strides(
        launch, capacity, params.head_dim,
        {"k_stride_page", "k_stride_token", "k_stride_head", args.k_stride_page, args.k_stride_token, args.k_stride_head}));
    if (launch.mla) {
        args.v_stride_page = args.k_stride_page;
        args.v_stride_token = args.k_stride_token;
        args.v_stride_head = args.k_stride_head;
    } else {
        XQAJIT_RETURN_IF_ERROR(fill_cache_strides(
            launch, capacity, params.head_dim_v,
            {"v_stride_page", "v_stride_token", "v_stride_head", args.v_stride_page, args.v_stride_token, args.v_stride_head}));
    }
    XQAJIT_RETURN_IF_ERROR(fill_table_stride("page_table_stride", args.max_pages, launch.sequences, args.page_table_stride));
    return fill_table_stride("mask_stride_row", (args.q_len + 31) / 32, launch.rows, args.mask_stride_row);
}

}  // namespace

Status check_batch(char const* name, std::uint32_t batch) {
    if (batch <= kMaxBatch) return {};
    return invalid_argument(fmt::format("{} is {}: accepted are 0..{}", name, batch, kMaxBatch));
}

Status check_tokens(char const* name, std::uint64_t tokens) {
    if (tokens <= kMaxTokens) return {};
    return invalid_argument(fmt::format("{} is {}: accepted are 0..{}", name, tokens, kMaxTokens));
}

Result<RunArgs> normalize_args(XQAParams const& params, RunArgs const& given) {
    RunArgs args;
    XQAJIT_RETURN_IF_ERROR(copy_versioned(given, kRunArgsMinimumSize, args));
    XQAJIT_RETURN_IF_ERROR(fill_values(params, args));
    XQAJIT_RETURN_IF_ERROR(fill_lengths(params, args));

    auto const sequences = static_cast<std::int64_t>(args.batch) * params.beam_width;
    Launch const launch{params, sequences, sequences * args.q_len, params.page_size > 0, params.mla != 0, args.max_len > 0};
    XQAJIT_RETURN_IF_ERROR(check_pointers(launch, args));
    XQAJIT_RETURN_IF_ERROR(fill_strides(launch, args));
    return args;
}

}  // namespace xqajit
