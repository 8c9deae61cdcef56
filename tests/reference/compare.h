// How far an output is from the reference.
#pragma once

#include <string>

#include "reference/reference.h"

namespace xqajit::testing {

struct Bounds {
    double rel_l2 = 0;     // ||out - ref|| / ||ref|| over a (request, kv head)
    double max_ratio = 0;  // max |out - ref| / max |ref| over a (request, kv head)
    double lse_abs = 0;    // |lse - ref| <= lse_abs + lse_rel * |ref| + lse_magnitude * magnitude of the scores
    double lse_rel = 0;
    double lse_magnitude = 0;
};

// 16-bit arithmetic: 4e-3 (bf16) and 1e-3 (fp16) in the norm, twice that for the worst element.
Bounds bounds_for(std::int32_t q_dtype);
// Those of a launch. Where it rotates q, float32 may round an element to the neighbour of what float64 gives, which moves its scores alike.
// With skip_softmax it may leave out t / (1 + t) of a row's denominator, t its threshold: as a bound of the output that takes the mean of
// what is left out to be no longer than that of the rest, and says little where t is large.
Bounds bounds_of(ReferenceCase const& c);

// Of a block of numeric fp8: 1.1 times what the emulation is off, and 2e-3, as the running maximum depends on tiles and parts; twice that for
// the worst element. The maximum also decides how each weight is rounded, so that the error of one row is another draw of chance than the
// emulation's: a block of n rows may be off by 1 + 0.5 / sqrt(n) times as much. Where a row's weight may be rounded to either neighbour, the
// worse counts: of few tokens one such weight is all the error. The log-sum-exp is compared with the emulation's. The tensor cores add
// products of e4m3 with fewer bits than float32 has: a score is off by up to 2^-9 of the terms' size as measured, so that 2^-8 of it is granted
// to the log-sum-exp, and 2^-11, but 0.05 at most, to the output.
Bounds fp8_bounds(BlockResult const& expected, Bounds bounds);

struct Comparison {
    bool ok = true;
    std::string text;   // the first failure: which block and element, expected and got
    double rel_l2 = 0;  // worst block; 0 with an fp8 output, which is compared in steps
    double max_ratio = 0;
    double lse_error = 0;
    double of_bound = 0;          // the worst of all but fp8 steps, each divided by its bound
    std::uint32_t fp8_steps = 0;  // from what the bounds allow
    std::size_t blocks = 0;
    void merge(Comparison const& other);
    std::string summary() const;  // "rel_l2 1.10e-03 max 2.00e-03 lse 1.0e-06 fp8_steps 0 (12 blocks)"
};

// out: bits with the case's output strides; lse: [rows, beam, num_q_heads], empty if the case has none. An fp8 output is right within
// one e4m3 step of a value that a 16-bit output may have (bounds.max_ratio), rounded. A row that sees
// nothing must be exactly 0.
Comparison compare_outputs(ReferenceCase const& c, Bytes const& out, std::span<float const> lse,
                           std::span<BlockResult const> expected, Bounds const& bounds);

}  // namespace xqajit::testing
