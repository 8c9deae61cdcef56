// xqajit bench: shapes at batches and lengths, each launch timed against a kernel that only reads as many bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/json.h"
#include "bench_report.h"
#include "reference/codec.h"
#include "timed_launch.h"
#include "tools/measure/read_roofline.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kProtocol[] =
    "KV in random, shuffled pages, as many copies as pass four times the L2, launched in turn in CUDA graphs of 2 ms or more; "
    "median of 24 "
    "replays after a pause of 200 ms; the better of programmatic dependent launch off and on. The read roofline is a kernel that "
    "loads as "
    "many bytes from as many buffers, the best of four grids, timed the same way in the same process.";

class Bench {
public:
    Bench(Service& service, testing::Gpu const& gpu, BenchOptions const& options)
        : service_(&service),
          gpu_(&gpu),
          roofline_(value_of(measure::ReadRoofline::compile(gpu.context()))),
          draw_(options.peaked ? testing::Draw::kPeaked : testing::Draw::kGaussian),
          max_len_(options.max_len),
          checks_(options.check) {}

    std::string const& nvrtc_version() const { return roofline_.nvrtc_version(); }

    BenchRow measure(NamedShape const& shape, Point const& point) {
        BenchRow row;
        row.name = shape.name;
        row.params = testing::with_defaults(shape.params);
        row.q_dtype = testing::name_of(row.params.q_dtype);
        row.kv_dtype = testing::name_of(row.params.kv_dtype);
        row.point = point;
        try {
            measure(row);
        } catch (Error const& error) {
            row.outcome = error.code() == XQAJIT_OUT_OF_MEMORY ? BenchRow::Outcome::kSkipped : BenchRow::Outcome::kFailed;
            row.reason = error.what();
        }
        return row;
    }

private:
    void measure(BenchRow& row) {
        std::vector<std::int32_t> const lens = row.point.lens();
        row.kv_bytes = kv_bytes(row.params, lens);
        bool const pdl_off = describe(row, false);
        bool const pdl_on = describe(row, true);
        {
            TimedLaunch launch(*gpu_, row.params, lens, draw_, max_len_);
            row.copies = launch.copies();
            row.us = 0;
            // Where the setting decides, or the arch has none, both are the same launch.
            for (bool const on : pdl_off == pdl_on ? std::vector{pdl_on} : std::vector{false, true}) {
                launch.set_pdl(on);
                measure::Timing const timing = launch.time();
                if (row.us != 0 && timing.us >= row.us) continue;
                row.us = timing.us;
                row.us_min = timing.min_us;
                row.us_max = timing.max_us;
                row.pdl = on;
            }
            launch.set_pdl(row.pdl);
            row.skipped_tiles_fraction = launch.skipped_fraction();
            if (checks_) compare(row, launch);
        }
        row.read_us = read_us(row.kv_bytes, row.copies);
    }

    // What the library says of the launch; returns whether it would depend programmatically on the one before.
    bool describe(BenchRow& row, bool pdl) {
        row.params.pdl = pdl ? 1 : 0;
        Json const document = Json::parse(
            service_->explain(row.params, "", row.point.batch(), std::max<std::uint64_t>(row.point.longest(), max_len_)));
        if (row.name.empty()) row.name = document["summary"].get<std::string>();
        throw_error_of(document);
        row.family = document["selection"]["family"].get<std::string>();
        Json const& launch = document["launch"];
        row.division = launch["division"].get<std::string>();
        throw_error_of(launch);
        row.nb_sub_seq = launch["plan"]["nb_sub_seq"].get<std::uint32_t>();
        row.grid_x = launch["plan"]["grid_x"].get<std::uint32_t>();
        return launch["pdl"].get<bool>();
    }

    static void throw_error_of(Json const& json) {
        if (json.contains("error")) throw Error(XQAJIT_UNSUPPORTED, json["error"]["message"].get<std::string>());
    }

    void compare(BenchRow& row, TimedLaunch& launch) {
        row.unchecked = launch.why_unchecked();
        if (!row.unchecked.empty()) return;
        testing::Comparison const comparison = launch.compare();
        row.check = {comparison.ok, comparison.rel_l2, comparison.blocks, launch.all_blocks()};
        if (!comparison.ok) throw Error(XQAJIT_INTERNAL, "the output differs from the reference: " + comparison.text);
    }

    double read_us(std::uint64_t bytes, int copies) {
        double& us = read_us_[{bytes, copies}];
        if (us == 0) us = value_of(roofline_.measure(gpu_->context(), gpu_->stream(), bytes, copies)).us;
        return us;
    }

    Service* service_;
    testing::Gpu const* gpu_;
    measure::ReadRoofline roofline_;
    testing::Draw draw_;
    std::uint64_t max_len_;
    bool checks_;
    std::map<std::pair<std::uint64_t, int>, double> read_us_;
};

// Of one shape's rows: a point's time over that of its equal.
void compare_with_equal(std::vector<GridPoint> const& grid, std::span<BenchRow> rows) {
    for (std::size_t n = 0; n < grid.size(); ++n) {
        if (!grid[n].equal || !rows[n].measured()) continue;
        for (BenchRow const& other : rows)
            if (other.measured() && other.point == *grid[n].equal && other.us > 0) rows[n].vs_equal = rows[n].us / other.us;
    }
}

void set_environment(char const* name, std::string const& value) {
    if (!value.empty()) ::setenv(name, value.c_str(), 1);
}

}  // namespace

int bench(BenchOptions const& options) {
    std::vector<GridPoint> const grid = grid_of(options);
    set_environment("XQAJIT_CACHE_DIR", options.cache_dir);
    set_environment("XQAJIT_FORCE_KERNEL", options.kernel);
    Service service;
    std::vector<NamedShape> const shapes = shapes_of(service, options.shapes, options.flags);
    for (std::string const& file : {options.csv, options.svg})  // told now rather than when all is measured
        if (!file.empty()) check_writable(file);
    std::unique_ptr<testing::Gpu> const gpu = value_of(testing::Gpu::open());
    Bench bench(service, *gpu, options);

    std::vector<BenchRow> rows;
    std::size_t const total = shapes.size() * grid.size();
    for (NamedShape const& shape : shapes) {
        for (GridPoint const& at : grid) {
            BenchRow const& row = rows.emplace_back(bench.measure(shape, at.point));
            std::string const result = row.measured() ? fmt::format("{:.2f} us, {:.3f}", row.us, row.fraction()) : row.reason;
            std::string const line = fmt::format("{} {}: {}", row.name, row.point.text(), result);
            fmt::print(stderr, "[{}/{}] {}\n", rows.size(), total, printable(line));
        }
        compare_with_equal(grid, std::span(rows).last(grid.size()));
    }

    if (options.json) {
        driver::ContextInfo const& info = gpu->context().info();
        Json document = {{"schema", "xqajit.bench/1"},
                         {"version", xqajit_version()},
                         {"gpu", info.device_name},
                         {"gpu_uuid", info.device_uuid},
                         {"sm_count", info.arch.sm_count},
                         {"nvrtc", bench.nvrtc_version()},
                         {"l2_bytes", value_of(measure::l2_bytes(info))},
                         {"keys", options.peaked ? "peaked" : "gaussian"},
                         {"protocol", kProtocol}};
        if (options.max_len != 0) document["max_len"] = options.max_len;
        document.update(bench_json(rows));
        print(to_text(document, 1));
    } else {
        print(bench_table(rows));
    }
    if (!options.csv.empty()) write_text_file(options.csv, bench_csv(rows));
    if (!options.svg.empty()) write_text_file(options.svg, bench_svg(rows));
    for (BenchRow const& row : rows)
        if (row.outcome == BenchRow::Outcome::kFailed) print_error(row.name + " " + row.point.text() + ": " + row.reason);
    return summary_of(rows).failed == 0 ? kDone : kFailed;
}

}  // namespace xqajit::cli
