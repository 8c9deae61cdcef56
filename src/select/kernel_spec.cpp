#include "select/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "kernel_src/gmma/launch.h"
#include "kernel_src/hmma/launch.h"

namespace xqajit {

namespace {

// Of hmma: whole tiles of what the block has rows for, up to what registers hold and a block's shared memory grants.
std::uint32_t hmma_m_tile(XQAParams const& params, std::uint32_t rows, std::uint32_t smem_optin) {
    auto const fits = [&](std::uint32_t m_tile) {
        return device::hmma_block_smem(params.head_dim, dtype_bytes(params.kv_dtype), m_tile, 1) <= smem_optin;
    };
    // A second tile of accumulators has no place beside a large head's, so that 32 rows are shared out over two warps there.
    std::uint32_t const of_a_warp = params.head_dim > 128 ? 8 : 16;
    if (rows <= 8) return 8;
    // Each beam has its own pages: their rows share nothing.
    if (rows <= of_a_warp || params.beam_width > 1) return of_a_warp;
    if (rows > 32 && fits(64)) return 64;
    return fits(32) ? 32 : of_a_warp;
}

// Of gmma: warps' own rows, or a group's, whose accumulators of a large head leave room for half as many.
std::uint32_t gmma_m_tile(XQAParams const& params, std::uint32_t rows) {
    bool const fp8_math = params.numeric == XQAJIT_NUMERIC_FP8;
    if (rows <= 8) return 8;
    if (rows <= (fp8_math ? device::kMostNarrowRows : device::gmma_narrow_rows(params.head_dim))) return device::kMostNarrowRows;
    return rows <= 32 || params.head_dim > 128 ? 32 : 64;
}

// Query rows that one block holds. A row is one query head of one query token; the rows of a KV head are all its heads' and tokens'.
std::uint32_t m_tile_of(Family family, XQAParams const& params, std::uint32_t group_size, std::uint32_t smem_optin) {
    std::uint32_t const rows = group_size * params.q_len;
    switch (family) {
        case Family::kHmma:
            return hmma_m_tile(params, rows, smem_optin);
        case Family::kGmma:
            return gmma_m_tile(params, rows);
        case Family::kMla:
            return params.spec_dec == XQAJIT_SPEC_DEC_NONE ? group_size : 64;
        // Without tensor cores a row costs registers and compile time: its slice of Q and of the output stay in registers, and every
        // product is an instruction. Four rows were slower with 16-bit KV and took up to 0.7 s to compile.
        case Family::kMmha:
            return std::min(std::bit_ceil(rows), 2u);
    }
    return 0;
}

}  // namespace

char const* family_name(Family family) {
    switch (family) {
        case Family::kHmma:
            return "hmma";
        case Family::kGmma:
            return "gmma";
        case Family::kMla:
            return "mla";
        case Family::kMmha:
            return "mmha";
    }
    return "?";
}

std::optional<Family> family_from_name(std::string_view name) {
    for (Family const family : kFamilies) {
        if (name == family_name(family)) return family;
    }
    return std::nullopt;
}

KernelSpec make_spec(Family family, XQAParams const& params, ArchFacts const& arch) {
    KernelSpec spec;
    spec.family = family;
    spec.target = arch.target;
    spec.q_dtype = params.q_dtype;
    spec.kv_dtype = params.kv_dtype;
    spec.out_dtype = params.out_dtype;
    spec.numeric = params.numeric;
    spec.head_dim = params.head_dim;
    spec.head_dim_v = params.head_dim_v;
    spec.group_size = params.num_q_heads / params.num_kv_heads;
    spec.beam_width = params.beam_width;
    spec.page_size = params.page_size;
    spec.spec_dec = params.spec_dec;
    spec.m_tile = m_tile_of(family, params, spec.group_size, arch.smem_optin);
    spec.mla = params.mla != 0;
    spec.has_window = params.sliding_window != 0;
    spec.has_softcap = params.softcap != 0;
    spec.has_sinks = params.sinks != 0;
    spec.has_lse = params.lse != 0;
    spec.input_kv = params.input_kv != 0;
    // Rotation belongs to the fused append: without it the fields change no kernel, so they must not change the key.
    spec.rope_style = spec.input_kv ? params.rope_style : std::int32_t{XQAJIT_ROPE_NONE};
    spec.rotary_dim = spec.input_kv && spec.rope_style != XQAJIT_ROPE_NONE ? params.rotary_dim : 0;
    spec.skip_softmax = params.skip_softmax != 0;
    return spec;
}

std::string to_string(KernelSpec const& spec) {
    std::string text =
        fmt::format("{} {} {}/{}/{} {}, D {}", family_name(spec.family), spec.target, dtype_name(spec.q_dtype),
                    dtype_name(spec.kv_dtype), dtype_name(spec.out_dtype), numeric_name(spec.numeric), spec.head_dim);
    if (spec.head_dim_v != spec.head_dim) text += fmt::format("/{}", spec.head_dim_v);
    text += fmt::format(", G {}, {}, M tile {}", spec.group_size,
                        spec.page_size == 0 ? std::string("contiguous") : fmt::format("page {}", spec.page_size), spec.m_tile);
    if (spec.beam_width > 1) text += fmt::format(", beam {}", spec.beam_width);
    if (spec.spec_dec != XQAJIT_SPEC_DEC_NONE) text += fmt::format(", {} draft", spec_dec_name(spec.spec_dec));
    if (spec.mla) text += ", mla";
    if (spec.has_window) text += ", window";
    if (spec.has_softcap) text += ", softcap";
    if (spec.has_sinks) text += ", sinks";
    if (spec.has_lse) text += ", lse";
    if (spec.input_kv)
        text += fmt::format(", input_kv ({} rope, rotary_dim {})", rope_style_name(spec.rope_style), spec.rotary_dim);
    if (spec.skip_softmax) text += ", skip_softmax";
    return text;
}

std::string to_json(KernelSpec const& spec) {
    return to_text({
        {"family", family_name(spec.family)},
        {"target", spec.target},
        {"q_dtype", dtype_name(spec.q_dtype)},
        {"kv_dtype", dtype_name(spec.kv_dtype)},
        {"out_dtype", dtype_name(spec.out_dtype)},
        {"numeric", numeric_name(spec.numeric)},
        {"head_dim", spec.head_dim},
        {"head_dim_v", spec.head_dim_v},
        {"group_size", spec.group_size},
        {"beam_width", spec.beam_width},
        {"page_size", spec.page_size},
        {"spec_dec", spec_dec_name(spec.spec_dec)},
        {"m_tile", spec.m_tile},
        {"mla", spec.mla},
        {"has_window", spec.has_window},
        {"has_softcap", spec.has_softcap},
        {"has_sinks", spec.has_sinks},
        {"has_lse", spec.has_lse},
        {"input_kv", spec.input_kv},
        {"rope_style", rope_style_name(spec.rope_style)},
        {"rotary_dim", spec.rotary_dim},
        {"skip_softmax", spec.skip_softmax},
    });
}

}  // namespace xqajit
