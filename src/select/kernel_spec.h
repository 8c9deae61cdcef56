// KernelSpec: exactly what one compiled kernel is specialised for.
#pragma once

#include <optional>
#include <string_view>

#include "params/xqa_params.h"
#include "select/arch.h"

namespace xqajit {

enum class Family : std::uint32_t { kHmma, kGmma, kMla, kMmha };
inline constexpr Family kFamilies[] = {Family::kHmma, Family::kGmma, Family::kMla, Family::kMmha};
char const* family_name(Family family);  // "hmma", "gmma", "mla", "mmha"
std::optional<Family> family_from_name(std::string_view name);

struct KernelSpec {
    Family family = Family::kMmha;
    std::string target;        // "sm_90a"
    std::int32_t q_dtype = 0;  // xqajit_dtype, never DEFAULT
    std::int32_t kv_dtype = 0;
    std::int32_t out_dtype = 0;
    std::int32_t numeric = 0;
    std::uint32_t head_dim = 0;
    std::uint32_t head_dim_v = 0;
    std::uint32_t group_size = 0;  // query heads a KV head
    std::uint32_t beam_width = 1;
    std::uint32_t page_size = 0;
    std::int32_t spec_dec = 0;  // xqajit_spec_dec
    std::uint32_t m_tile = 0;   // query rows one block holds
    bool mla = false;
    bool has_window = false;
    bool has_softcap = false;
    bool has_sinks = false;
    bool has_lse = false;
    bool input_kv = false;
    std::int32_t rope_style = 0;
    std::uint32_t rotary_dim = 0;
    bool skip_softmax = false;

    bool operator==(KernelSpec const&) const = default;
};

// What no other family computes. Shape: XQAParams or KernelSpec.
template <class Shape> bool is_gmmas_alone(Shape const& shape) {
    return shape.input_kv != 0 || shape.skip_softmax != 0 || shape.numeric == XQAJIT_NUMERIC_FP8;
}

std::string to_string(KernelSpec const& spec);  // one line
std::string to_json(KernelSpec const& spec);

// The spec of `family` for a normalized, valid shape: fills m_tile from the family's rule. Says nothing about admission.
KernelSpec make_spec(Family family, XQAParams const& params, ArchFacts const& arch);

}  // namespace xqajit
