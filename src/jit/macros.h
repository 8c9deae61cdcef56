// KernelSpec -> the -D macros of one compile. The only table of them; kernel_src/<family>/config.cuh reads exactly these:
//   XQAJIT_HEAD_DIM, XQAJIT_HEAD_DIM_V, XQAJIT_GROUP_SIZE, XQAJIT_BEAM_WIDTH, XQAJIT_M_TILE   counts
//   XQAJIT_PAGE_SIZE                                                                          tokens; 0: contiguous
//   XQAJIT_Q_DTYPE, XQAJIT_KV_DTYPE, XQAJIT_OUT_DTYPE                                         xqajit_dtype
//   XQAJIT_NUMERIC                                                                            xqajit_numeric
//   XQAJIT_SPEC_DEC                                                                           xqajit_spec_dec
//   XQAJIT_IS_MLA, XQAJIT_HAS_WINDOW, XQAJIT_HAS_SOFTCAP, XQAJIT_HAS_SINKS, XQAJIT_HAS_LSE    0 or 1
//   XQAJIT_INPUT_KV, XQAJIT_SKIP_SOFTMAX                                                      0 or 1
//   XQAJIT_ROPE_STYLE, XQAJIT_ROTARY_DIM                                                      xqajit_rope_style; elements
// The architecture is no macro: device code reads __CUDA_ARCH__.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "select/kernel_spec.h"

namespace xqajit {

struct MacroDefinition {
    char const* name;
    std::int64_t (*value)(KernelSpec const& spec);
};

std::span<MacroDefinition const> macro_table();  // sorted by name

struct MacroSet {
    std::vector<std::pair<std::string, std::string>> macros;  // sorted by name
    std::string to_string() const;                            // "-DXQAJIT_BEAM_WIDTH=1 -D..."
    std::string to_json() const;                              // {"XQAJIT_BEAM_WIDTH": "1", ...}
};

MacroSet macros_for(KernelSpec const& spec);

}  // namespace xqajit
