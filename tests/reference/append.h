// The float64 reference of input_kv: rotate, append; then reference.h attends.
#pragma once

#include "reference/reference.h"

namespace xqajit::testing {

// Cosine and sine of each pair's angle at each position, as args.cos_sin has them: position * base^(-2 i / rotary_dim).
std::vector<float> rope_angles(std::int64_t positions, std::uint32_t rotary_dim, double base);

// The plain launch (input_kv 0) that an input_kv launch must equal: q rotated and rounded to its type, and pools of its own that hold the
// new tokens as they are stored. It shares no memory with `c`.
ReferenceCase appended(ReferenceCase const& c);

// Where the pools after a launch differ from what it may have left, in words; "" where they don't. Rotated elements of K may be off by
// float32 rounding before theirs, all else is exact, and every byte but the new tokens' is as in `c`. v: not looked at where K and V share
// a pool.
std::string pools_difference(ReferenceCase const& c, Bytes const& k, Bytes const& v);

}  // namespace xqajit::testing
