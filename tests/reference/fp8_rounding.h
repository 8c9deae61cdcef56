// What numeric fp8 rounds to e4m3, and the one rounding of a row that chance may turn.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "reference/codec.h"

namespace xqajit::testing {

inline double round_to_e4m3(double value) { return decode(XQAJIT_DTYPE_FP8_E4M3, encode(XQAJIT_DTYPE_FP8_E4M3, value)); }

// Numeric fp8 multiplies a row of q by the power of two that brings its largest element to 128..256, of e4m3's 448, and rounds.
inline void round_query(double* row, std::size_t n) {
    double largest = 0;
    for (std::size_t d = 0; d < n; ++d) largest = std::max(largest, std::fabs(row[d]));
    if (largest == 0) return;
    double const scale = std::exp2(7 - std::floor(std::log2(largest)));
    for (std::size_t d = 0; d < n; ++d) row[d] = round_to_e4m3(row[d] * scale) / scale;
}

// Weights are rounded as multiples of the largest one's 64th part, so that e4m3's range holds those far below it.
inline double round_weight(double of_largest) { return round_to_e4m3(of_largest * 64) / 64; }

// The tensor cores add products of e4m3 with fewer bits than float32 has: a score is off by up to so much of the sum of its terms' sizes, as
// measured.
constexpr double kFp8ScoreError = 0x1p-9;

// From what a weight is rounded to, to what it is where its score is off by `error` at most: 0, or the distance to a neighbour.
inline double to_other_rounding(double of_largest, double error) {
    error = std::min(error, 0x1p-5);
    double const rounded = round_weight(of_largest), above = round_weight(of_largest * std::exp(error));
    return above != rounded ? above - rounded : round_weight(of_largest * std::exp(-error)) - rounded;
}

inline double norm_of(std::vector<double> const& row) {
    return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
}

// The one weight of a row that is rounded otherwise: what is added to it, and its token.
struct OtherRounding {
    double added = 0;
    std::int64_t token = 0;
    double moves = 0;  // the row, in the norm

    void consider(double more, std::int64_t of_token, std::vector<double> const& v) {
        double const distance = more == 0 ? 0 : std::fabs(more) * norm_of(v);
        if (distance > moves) *this = {more, of_token, distance};
    }
};

}  // namespace xqajit::testing
