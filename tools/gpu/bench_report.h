// What `bench` measured, as a table, JSON, CSV and a plot. Knows no GPU.
#pragma once

#include <nlohmann/json.hpp>

#include "grid.h"

namespace xqajit::cli {

struct BenchRow {
    enum class Outcome { kMeasured, kSkipped, kFailed };

    std::string name;
    xqajit_params params{};
    std::string q_dtype;
    std::string kv_dtype;
    Point point;
    Outcome outcome = Outcome::kMeasured;
    std::string reason;  // why it was skipped, or failed

    // From the library's own account of the launch.
    std::string family;
    std::string division;
    std::uint32_t nb_sub_seq = 0;
    std::uint32_t grid_x = 0;

    std::uint64_t kv_bytes = 0;
    int copies = 0;
    double us = 0;
    double us_min = 0;
    double us_max = 0;
    double read_us = 0;
    bool pdl = false;                              // whether the better of both had it
    std::optional<double> skipped_tiles_fraction;  // of the tiles, with skip-softmax
    std::optional<double> vs_equal;                // its time over that of the same tokens in equal lengths

    struct Check {
        bool ok = true;
        double rel_l2 = 0;
        std::size_t blocks = 0;
        std::size_t all_blocks = 0;
    };
    std::optional<Check> check;
    std::string unchecked;  // why there is no check, where one was asked for

    bool measured() const { return outcome == Outcome::kMeasured; }
    double gb_per_s() const { return us > 0 ? static_cast<double>(kv_bytes) / us * 1e-3 : 0; }
    double fraction() const { return us > 0 ? read_us / us : 0; }  // of the read roofline: the same bytes
};

struct BenchSummary {
    std::size_t points = 0;
    std::size_t measured = 0;
    std::size_t skipped = 0;
    std::size_t failed = 0;
    std::size_t checked = 0;
};
BenchSummary summary_of(std::vector<BenchRow> const& rows);

// The table, then a line for each point that was skipped, failed or not checked, then the totals.
std::string bench_table(std::vector<BenchRow> const& rows);
nlohmann::ordered_json bench_json(std::vector<BenchRow> const& rows);  // {"summary", "rows"}: what is unknown is null
std::string bench_csv(std::vector<BenchRow> const& rows);              // the columns of the JSON's rows
// Fraction of the read roofline over KV bytes, a line for each shape and family.
std::string bench_svg(std::vector<BenchRow> const& rows);

}  // namespace xqajit::cli
