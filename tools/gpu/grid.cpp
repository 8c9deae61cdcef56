#include "grid.h"

#include <algorithm>

namespace xqajit::cli {
namespace {

constexpr std::uint64_t kMaxBatch = 65536;
constexpr std::uint64_t kMaxLen = 1u << 24;  // as run's --seq-len

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (std::size_t begin = 0;;) {
        std::size_t const end = text.find(separator, begin);
        parts.push_back(text.substr(begin, end - begin));
        if (end == std::string_view::npos) return parts;
        begin = end + 1;
    }
}

[[noreturn]] void refuse(std::string const& flag, std::string_view value, std::string const& accepted) {
    throw Error(XQAJIT_INVALID_ARGUMENT, flag + ": '" + std::string(value) + "' is not accepted: " + accepted);
}

[[noreturn]] void refuse_point(std::string const& flag, std::string_view value) {
    refuse(flag, value,
           "a point is BATCHxLENGTH, as 8x8192, or several joined by '+', as 1x131072+31x512, with commas between points; 1.." +
               std::to_string(kMaxBatch) + " requests a point, of 1.." + std::to_string(kMaxLen) + " tokens each");
}

}  // namespace

std::uint32_t Point::batch() const {
    std::uint32_t sum = 0;
    for (Requests const& some : requests) sum += some.count;
    return sum;
}

std::uint32_t Point::longest() const {
    std::uint32_t longest = 0;
    for (Requests const& some : requests) longest = std::max(longest, some.len);
    return longest;
}

std::vector<std::int32_t> Point::lens() const {
    std::vector<std::int32_t> lens;
    for (Requests const& some : requests) lens.insert(lens.end(), some.count, static_cast<std::int32_t>(some.len));
    return lens;
}

std::string Point::text() const {
    std::string text;
    for (Requests const& some : requests)
        text += (text.empty() ? "" : "+") + std::to_string(some.count) + "x" + std::to_string(some.len);
    return text;
}

std::string Point::lengths() const { return requests.size() == 1 ? std::to_string(requests.front().len) : text(); }

Point Point::in_equal_lengths() const {
    std::uint64_t tokens = 0;
    for (Requests const& some : requests) tokens += std::uint64_t{some.count} * some.len;
    auto const len = static_cast<std::uint32_t>(tokens / batch());
    auto const longer = static_cast<std::uint32_t>(tokens % batch());
    Point equal;
    if (longer > 0) equal.requests.push_back({longer, len + 1});
    equal.requests.push_back({batch() - longer, len});
    return equal;
}

std::vector<std::uint32_t> parse_numbers(std::string const& flag, std::string const& text, std::uint64_t most) {
    std::vector<std::uint32_t> numbers;
    for (std::string_view const part : parts_of(text, ',')) {
        std::optional<std::uint64_t> const number = whole_number(part, 1, most);
        if (!number) refuse(flag, part, "whole numbers 1.." + std::to_string(most) + " with commas between");
        numbers.push_back(static_cast<std::uint32_t>(*number));
    }
    return numbers;
}

std::vector<Point> parse_points(std::string const& flag, std::string const& text) {
    std::vector<Point> points;
    for (std::string_view const part : parts_of(text, ',')) {
        Point point;
        std::uint64_t batch = 0;
        for (std::string_view const some : parts_of(part, '+')) {
            std::size_t const x = std::min(some.find('x'), some.size());
            std::optional<std::uint64_t> const count = whole_number(some.substr(0, x), 1, kMaxBatch);
            std::optional<std::uint64_t> const len = whole_number(some.substr(std::min(x + 1, some.size())), 1, kMaxLen);
            if (!count || !len || (batch += *count) > kMaxBatch) refuse_point(flag, part);
            point.requests.push_back({static_cast<std::uint32_t>(*count), static_cast<std::uint32_t>(*len)});
        }
        points.push_back(std::move(point));
    }
    return points;
}

std::vector<GridPoint> grid_of(BenchOptions const& options) {
    std::vector<GridPoint> grid;
    auto const add = [&](Point const& point) -> GridPoint& {
        auto const known = std::find_if(grid.begin(), grid.end(), [&](GridPoint const& other) { return other.point == point; });
        return known != grid.end() ? *known : grid.emplace_back(GridPoint{point, std::nullopt});
    };
    if (!options.batches.empty() || !options.seq_lens.empty())
        for (std::uint32_t const batch : parse_numbers("--batch", options.batches, kMaxBatch))
            for (std::uint32_t const len : parse_numbers("--seq-len", options.seq_lens, kMaxLen)) add({{{batch, len}}});
    if (!options.grid.empty())
        for (Point const& point : parse_points("--grid", options.grid)) add(point);
    if (!options.unequal.empty())
        for (Point const& point : parse_points("--unequal", options.unequal)) {
            Point const equal = point.in_equal_lengths();
            GridPoint& added = add(point);
            if (equal == point) continue;
            added.equal = equal;
            add(equal);
        }
    if (grid.empty()) refuse_point("--grid", options.grid);
    return grid;
}

}  // namespace xqajit::cli
