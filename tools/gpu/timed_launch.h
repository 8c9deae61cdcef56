// One launch on random data in random, shuffled pages, through the public interface, as `run` and `bench` time it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../cli.h"
#include "gpu/problem.h"
#include "gpu/run_and_check.h"
#include "tools/measure/timing.h"

namespace xqajit::cli {

// A Status of the harness or of the measuring leaves as the command's Error.
void check(Status const& status);
template <class T> T value_of(Result<T> result) {
    check(result.status());
    return std::move(result).value();
}

// What one launch reads: K and V of the tokens that some row of their request sees.
std::uint64_t kv_bytes(xqajit_params const& params, std::vector<std::int32_t> const& lens);
// What the KV takes in memory, a sequence of contiguous KV being as long as the longest, or as max_len.
std::uint64_t pool_bytes(xqajit_params const& params, std::vector<std::int32_t> const& lens, std::uint64_t max_len);
double gb_per_s(std::uint64_t bytes, double us);

// The inputs on the device, in as many copies as pass the L2: a KV that lay in it would show the L2's speed.
class TimedLaunch {
public:
    // Throws Error; OUT_OF_MEMORY where the KV fits neither the device nor, contiguous, the host that draws it.
    // max_len: what the launch is planned for; at least the longest is.
    TimedLaunch(testing::Gpu const& gpu, xqajit_params const& params, std::vector<std::int32_t> const& lens,
                testing::Draw draw = testing::Draw::kGaussian, std::uint64_t max_len = 0);

    int copies() const { return static_cast<int>(problems_.size()); }
    measure::Timing time();
    // Programmatic dependent launch, from the next launch on.
    void set_pdl(bool on);

    // "" where compare() takes seconds at most; else why it is not to be waited for.
    std::string why_unchecked() const;
    // Of the first copy, launched anew, with the float64 reference.
    testing::Comparison compare();
    // Of the tiles of the first copy, launched anew, which are skipped; nullopt without skip-softmax.
    std::optional<double> skipped_fraction();
    std::size_t all_blocks() const { return testing::all_blocks(case_).size(); }

private:
    testing::Gpu const* gpu_;
    testing::ReferenceCase case_;
    std::vector<testing::DeviceProblem> problems_;
};

}  // namespace xqajit::cli
