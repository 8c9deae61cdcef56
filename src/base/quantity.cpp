#include "base/quantity.h"

#include <charconv>
#include <span>

namespace xqajit {
namespace {

struct Unit {
    char suffix;
    std::uint64_t factor;
};
constexpr Unit kSizes[] = {{'K', 1ull << 10}, {'M', 1ull << 20}, {'G', 1ull << 30}, {'T', 1ull << 40},
                           {'k', 1ull << 10}, {'m', 1ull << 20}, {'g', 1ull << 30}, {'t', 1ull << 40}};
constexpr Unit kAges[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};

// factor: of a number without a suffix; 0 where one is required.
std::optional<std::uint64_t> parse(std::string_view text, std::span<Unit const> units, std::uint64_t factor) {
    for (Unit const& unit : units) {
        if (!text.ends_with(unit.suffix)) continue;
        factor = unit.factor;
        text.remove_suffix(1);
        break;
    }
    std::uint64_t number = 0, product = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    bool const plain = error == std::errc() && end == text.data() + text.size() && text.front() != '0';
    if (!plain || factor == 0 || __builtin_mul_overflow(number, factor, &product)) return std::nullopt;
    return product;
}

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) { return parse(text, kSizes, 1); }
std::optional<std::uint64_t> parse_age(std::string_view text) { return parse(text, kAges, 0); }

}  // namespace xqajit
