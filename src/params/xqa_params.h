// XQAParams: names of its values, validation of a shape and of a launch's arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "xqajit/xqajit.h"

namespace xqajit {

using XQAParams = xqajit_params;  // the public struct is the only definition of a shape
using RunArgs = xqajit_run_args;

char const* dtype_name(std::int32_t dtype);        // "bf16", "fp8_e4m3", ...
char const* spec_dec_name(std::int32_t spec_dec);  // "none", "linear", "tree"
char const* numeric_name(std::int32_t numeric);    // "exact16", "fp8"
char const* rope_style_name(std::int32_t style);   // "none", "neox", "gptj"
char const* position_name(std::int32_t position);  // "default", "learned_absolute", "yarn", "alibi", "relative"
char const* division_name(std::int32_t division);  // "default", "static", "balanced", "invariant"
char const* on_miss_name(std::int32_t on_miss);    // "default", "compile", "fallback", "refuse"

// What one launch may be asked for; lengths and page numbers are int32.
inline constexpr std::uint32_t kMaxBatch = 65536;
inline constexpr std::uint64_t kMaxTokens = 0x7fffffff;
// INVALID_ARGUMENT past these, under the caller's name for the value.
Status check_batch(char const* name, std::uint32_t batch);
Status check_tokens(char const* name, std::uint64_t tokens);

// Element size in bytes; 0 for a value that is no dtype.
std::uint32_t dtype_bytes(std::int32_t dtype);
inline bool is_8bit(std::int32_t dtype) { return dtype == XQAJIT_DTYPE_FP8_E4M3 || dtype == XQAJIT_DTYPE_INT8; }

// struct_size may be smaller than ours (an older header) down to the end of the last required field, or larger while every byte
// that we do not know is zero; all that is missing counts as zero.
inline constexpr std::size_t kParamsMinimumSize = offsetof(XQAParams, head_dim_v);
inline constexpr std::size_t kRunArgsMinimumSize = offsetof(RunArgs, cu_q_len);

// A copy with every default filled in (dtypes, head_dim_v, beam_width, q_len, qk_scale, rotary_dim, numeric). Fails only for its
// struct_size; idempotent.
Result<XQAParams> normalize(XQAParams const& params);
// Whether a struct of struct_size bytes, of an older header, holds a normalized shape: INVALID_ARGUMENT names the first field that it
// lacks and whose value is not the default.
Status check_fits(XQAParams const& params, std::size_t struct_size);
// Range checks of a normalized shape: the first field out of range. What is in range but unsupported is admission's business.
Status validate(XQAParams const& params);

// Fills defaults (strides, max_len) and checks every field of a launch against a normalized, valid shape: null pointers, alignment
// of bases and strides, scales, capacity, int32 limits. Host work only; allocates nothing unless it fails.
//  - batch 0: every pointer may be null; all else is checked as for any batch.
//  - max_len 0 (no pages, or no capacity): nothing of the cache is read, so k, v, page_table and the beam tables may be null.
//  - The three strides of K, or of V: all 0 is packed NHD, [pages, page_size, num_kv_heads, head_dim] or [batch * beam, capacity,
//    num_kv_heads, head_dim]. Otherwise each is required, but for one along which there is a single element (one KV head; one
//    contiguous sequence). With mla V takes K's strides.
//  - q, qkv and out: a head stride of 0 is the head's size, a row stride of 0 is as many head strides as a row has heads.
//  - input_kv: qkv takes the place of q, which must be null; with a rope_style cos_sin has at least max_len positions.
//  - The workspace is checked for its alignment only.
Result<RunArgs> normalize_args(XQAParams const& params, RunArgs const& args);

std::string to_string(XQAParams const& params);  // one line: "bf16/fp8_e4m3 64:8 heads, D 128, page 32, window"
std::string to_json(
    XQAParams const& params);  // of a valid shape: an object with the shape list's keys; fields at their default left out

}  // namespace xqajit
