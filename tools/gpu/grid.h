// Where `bench` measures: points of the command line, each a batch and the lengths in it.
#pragma once

#include "../cli.h"

namespace xqajit::cli {

struct Requests {
    std::uint32_t count = 0;
    std::uint32_t len = 0;
    bool operator==(Requests const&) const = default;
};

struct Point {
    std::vector<Requests> requests;
    bool operator==(Point const&) const = default;

    std::uint32_t batch() const;
    std::uint32_t longest() const;
    std::vector<std::int32_t> lens() const;  // of every request
    std::string lengths() const;             // "8192", or "1x131072+31x512"
    std::string text() const;                // "8x8192", or "1x131072+31x512"
    // As many requests and tokens, in lengths that differ by one token at most.
    Point in_equal_lengths() const;
};

struct GridPoint {
    Point point;
    std::optional<Point> equal;  // another point of the grid, with whose time this one's is compared
};

// Each throws Error (INVALID_ARGUMENT) that names flag, value and accepted form.
std::vector<std::uint32_t> parse_numbers(std::string const& flag, std::string const& text, std::uint64_t most);
std::vector<Point> parse_points(std::string const& flag, std::string const& text);
// The product of batches and lengths, then --grid, then --unequal, each of these followed by its equal; a point counts once.
std::vector<GridPoint> grid_of(BenchOptions const& options);

}  // namespace xqajit::cli
