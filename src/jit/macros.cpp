#include "jit/macros.h"

namespace xqajit {

namespace {

// clang-format off
constexpr MacroDefinition kMacros[] = {
    {"XQAJIT_BEAM_WIDTH",   [](KernelSpec const& spec) -> std::int64_t { return spec.beam_width; }},
    {"XQAJIT_GROUP_SIZE",   [](KernelSpec const& spec) -> std::int64_t { return spec.group_size; }},
    {"XQAJIT_HAS_LSE",      [](KernelSpec const& spec) -> std::int64_t { return spec.has_lse; }},
    {"XQAJIT_HAS_SINKS",    [](KernelSpec const& spec) -> std::int64_t { return spec.has_sinks; }},
    {"XQAJIT_HAS_SOFTCAP",  [](KernelSpec const& spec) -> std::int64_t { return spec.has_softcap; }},
    {"XQAJIT_HAS_WINDOW",   [](KernelSpec const& spec) -> std::int64_t { return spec.has_window; }},
    {"XQAJIT_HEAD_DIM",     [](KernelSpec const& spec) -> std::int64_t { return spec.head_dim; }},
    {"XQAJIT_HEAD_DIM_V",   [](KernelSpec const& spec) -> std::int64_t { return spec.head_dim_v; }},
    {"XQAJIT_INPUT_KV",     [](KernelSpec const& spec) -> std::int64_t { return spec.input_kv; }},
    {"XQAJIT_IS_MLA",       [](KernelSpec const& spec) -> std::int64_t { return spec.mla; }},
    {"XQAJIT_KV_DTYPE",     [](KernelSpec const& spec) -> std::int64_t { return spec.kv_dtype; }},
    {"XQAJIT_M_TILE",       [](KernelSpec const& spec) -> std::int64_t { return spec.m_tile; }},
    {"XQAJIT_NUMERIC",      [](KernelSpec const& spec) -> std::int64_t { return spec.numeric; }},
    {"XQAJIT_OUT_DTYPE",    [](KernelSpec const& spec) -> std::int64_t { return spec.out_dtype; }},
    {"XQAJIT_PAGE_SIZE",    [](KernelSpec const& spec) -> std::int64_t { return spec.page_size; }},
    {"XQAJIT_Q_DTYPE",      [](KernelSpec const& spec) -> std::int64_t { return spec.q_dtype; }},
    {"XQAJIT_ROPE_STYLE",   [](KernelSpec const& spec) -> std::int64_t { return spec.rope_style; }},
    {"XQAJIT_ROTARY_DIM",   [](KernelSpec const& spec) -> std::int64_t { return spec.rotary_dim; }},
    {"XQAJIT_SKIP_SOFTMAX", [](KernelSpec const& spec) -> std::int64_t { return spec.skip_softmax; }},
    {"XQAJIT_SPEC_DEC",     [](KernelSpec const& spec) -> std::int64_t { return spec.spec_dec; }},
};
// clang-format on

}  // namespace

std::span<MacroDefinition const> macro_table() { return kMacros; }

std::string MacroSet::to_string() const {
    std::string text;
    for (auto const& [name, value] : macros) text += (text.empty() ? "-D" : " -D") + name + "=" + value;
    return text;
}

std::string MacroSet::to_json() const {
    std::string text = "{";
    for (auto const& [name, value] : macros) text += (text.size() == 1 ? "\"" : ", \"") + name + "\": \"" + value + "\"";
    return text + "}";
}

MacroSet macros_for(KernelSpec const& spec) {
    MacroSet set;
    for (MacroDefinition const& definition : kMacros)
        set.macros.emplace_back(definition.name, std::to_string(definition.value(spec)));
    return set;
}

}  // namespace xqajit
