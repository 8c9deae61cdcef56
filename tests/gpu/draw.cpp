#include "gpu/draw.h"

#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "reference/codec.h"

namespace xqajit::testing {
namespace {

// x with P(standard Gaussian < x) = p, by bisection of the complementary error function: exact enough, and no table of constants.
std::vector<double> const& gaussian_quantiles() {
    static std::vector<double> const quantiles = [] {
        std::vector<double> values(65536);
        double low = -6;
        for (std::size_t n = 0; n < values.size(); ++n) {
            double const p = (static_cast<double>(n) + 0.5) / static_cast<double>(values.size());
            double a = low;
            double b = 6;
            for (int step = 0; step < 40; ++step) {
                double const middle = (a + b) / 2;
                (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? a : b) = middle;
            }
            values[n] = low = a;
        }
        return values;
    }();
    return quantiles;
}

// Encoding them takes longer than drawing most launches: each pair of type and sigma is encoded once.
std::vector<std::uint16_t> const& gaussian_codes(std::int32_t dtype, double sigma) {
    static std::mutex mutex;
    static std::map<std::pair<std::int32_t, double>, std::vector<std::uint16_t>> known;
    std::lock_guard const lock(mutex);
    std::vector<std::uint16_t>& codes = known[{dtype, sigma}];
    if (codes.empty())
        for (double const x : gaussian_quantiles()) codes.push_back(static_cast<std::uint16_t>(encode(dtype, x * sigma)));
    return codes;
}

}  // namespace

std::uint64_t Random::next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

std::int64_t Random::between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
}

bool Random::chance(double probability) { return static_cast<double>(next() >> 11) < probability * 0x1p53; }

GaussianFill::GaussianFill(std::int32_t dtype, double sigma)
    : element_bytes_(bytes_of(dtype)), codes_(gaussian_codes(dtype, sigma)) {}

void GaussianFill::fill(Random& random, std::uint8_t* row, std::int64_t first_element, std::uint32_t count) const {
    std::uint64_t bits = 0;
    for (std::uint32_t n = 0; n < count; ++n) {
        bits = n % 4 == 0 ? random.next() : bits >> 16;
        store_bits(row, first_element + n, element_bytes_, codes_[bits & 0xFFFF]);
    }
}

}  // namespace xqajit::testing
