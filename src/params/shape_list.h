// Shape lists: JSON {"version": 1, "defaults": {...}, "shapes": [{...}]}. Any value may be a list (cross product).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "params/xqa_params.h"

namespace xqajit {

struct ShapeEntry {
    std::string name;  // free text, may be empty
    XQAParams params;  // normalized and validated; num_q_heads and num_kv_heads divided by tp
    std::uint32_t tp = 1;
};

// Keys are XQAParams' fields (dtypes and kinds by name) plus name and tp. Errors are INVALID_ARGUMENT and give line, key, value and
// accepted range. Limits: 16 MiB of text, 64 levels, 100 000 entries after expansion.
Result<std::vector<ShapeEntry>> parse_shape_list(std::string_view text);
// One object, scalars only.
Result<ShapeEntry> parse_shape(std::string_view text);

}  // namespace xqajit
