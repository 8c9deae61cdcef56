// Random numbers that are the same everywhere for one seed, unlike the standard library's distributions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace xqajit::testing {

// SplitMix64.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next();
    // Uniform in [low, high].
    std::int64_t between(std::int64_t low, std::int64_t high);
    bool chance(double probability);
    template <class T> T const& pick(std::span<T const> values) {
        return values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(values.size()) - 1))];
    }
    template <class T, std::size_t N> T const& pick(T const (&values)[N]) { return pick(std::span<T const>(values)); }
    template <class T> void shuffle(std::vector<T>& values) {
        for (std::size_t n = values.size(); n > 1; --n)
            std::swap(values[n - 1], values[static_cast<std::size_t>(between(0, static_cast<std::int64_t>(n) - 1))]);
    }

private:
    std::uint64_t state_;
};

// Encoded Gaussian elements, fast: a table of 65536 quantiles, four draws a random number.
class GaussianFill {
public:
    // Stores encode(dtype, x * sigma) of a standard Gaussian x.
    GaussianFill(std::int32_t dtype, double sigma);
    void fill(Random& random, std::uint8_t* row, std::int64_t first_element, std::uint32_t count) const;

private:
    std::uint32_t element_bytes_;
    std::vector<std::uint16_t> const& codes_;  // of the quantiles; kept for the life of the process
};

}  // namespace xqajit::testing
