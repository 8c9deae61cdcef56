#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace xqajit {
namespace {

constexpr std::size_t kLongestWord = 64;  // bounds the work that hostile input can cause

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Two letters that changed places are one slip of the hand: counted as two, no short word would be close to what was meant.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before, above, row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    auto const same = [&](std::size_t i, std::size_t j) { return lower(a[i]) == lower(b[j]); };
    for (std::size_t i = 0; i < a.size(); ++i) {
        before = std::move(above);
        above = row;
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            row[j + 1] = std::min({above[j] + (same(i, j) ? 0 : 1), row[j] + 1, above[j + 1] + 1});
            if (i > 0 && j > 0 && same(i, j - 1) && same(i - 1, j)) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
        }
    }
    return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<std::string_view const> known) {
    if (word.size() > kLongestWord) return {};
    std::string_view best;
    std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (std::string_view const candidate : known) {
        std::size_t const distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

std::string did_you_mean(std::string_view word, std::span<std::string_view const> known) {
    std::string_view const candidate = nearest(word, known);
    if (candidate.empty()) return {};
    return " (did you mean '" + std::string(candidate) + "'?)";
}

}  // namespace xqajit
