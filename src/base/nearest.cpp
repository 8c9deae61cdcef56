#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace xqajit {
namespace {

constexpr std::size_t kLongestWord = 64;  // bounds the work that hostile input can cause

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i + 1;
        for (std::size_t j = 0; j < b.size(); ++j) {
            std::size_t const substituted = diagonal + (lower(a[i]) == lower(b[j]) ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
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
