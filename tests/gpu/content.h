// What the tensors of a problem hold.
#pragma once

#include "gpu/draw.h"
#include "gpu/problem.h"

namespace xqajit::testing {

// K and V of every token that some row sees, Gaussian; all else stays as the pool was made.
void fill_kv(ReferenceCase& c, ProblemSpec const& spec, Random& random);
// Keys and queries as spec.draw has them, in place of Gaussian ones.
void apply_draw(ReferenceCase& c, ProblemSpec const& spec, Random& random);
// input_kv: q moves to qkv, beside new K and V.
void move_to_qkv(ReferenceCase& c, ProblemSpec const& spec, Random& random);

}  // namespace xqajit::testing
