// A conformance vector read from JSON, and the launch it becomes for one choice of types.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "reference/reference.h"

namespace xqajit::testing {

struct Vector {
    std::string name;
    // Types left out; K and V hold integer codes in int64 pools laid out with the strides of `layout`.
    ReferenceCase layout;
    std::vector<std::int32_t> q;
    std::vector<std::int32_t> k;  // one pool each, or one for both where interleaved
    std::vector<std::int32_t> v;
    bool interleaved = false;
    bool garbage = false;
    double unit = 1;  // value = code * unit
    double k_scale = 1;
    double v_scale = 1;
    std::vector<BlockResult> expected;
};

struct VectorTypes {
    std::int32_t q = XQAJIT_DTYPE_BF16;
    std::int32_t kv = XQAJIT_DTYPE_BF16;
    std::int32_t out = XQAJIT_DTYPE_BF16;
};
std::string to_string(VectorTypes const& types);  // "bf16/int8 -> bf16"

// INVALID_ARGUMENT names the file and what is wrong with it.
Result<Vector> load_vector(std::filesystem::path const& file);
// A vector with KV scales needs 8-bit KV.
bool can_take(Vector const& vector, VectorTypes const& types);
ReferenceCase make_case(Vector const& vector, VectorTypes const& types);

}  // namespace xqajit::testing
