#include "bench_report.h"
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

char const* outcome_name(BenchRow::Outcome outcome) {
    constexpr char const* kNames[] = {"measured", "skipped", "failed"};
    return kNames[static_cast<int>(outcome)];
}

std::string note(char const* what, BenchRow const& row, std::string const& why) {
    return fmt::format("{}: {}\n", what, printable(row.name + " " + row.point.text() + ": " + why));
}

Json row_json(BenchRow const& row) {
    auto const if_measured = [&](Json value) { return row.measured() ? std::move(value) : Json(nullptr); };
    auto const if_known = [&](Json value) { return row.family.empty() ? Json(nullptr) : std::move(value); };
    auto const if_checked = [&](auto const& value) { return row.check ? Json(value(*row.check)) : Json(nullptr); };
    auto const if_said = [&](std::string const& text) { return text.empty() ? Json(nullptr) : Json(text); };
    return {{"name", row.name},
            {"outcome", outcome_name(row.outcome)},
            {"reason", if_said(row.reason)},
            {"family", if_said(row.family)},
            {"q_dtype", if_said(row.q_dtype)},
            {"kv_dtype", if_said(row.kv_dtype)},
            {"head_dim", row.params.head_dim},
            {"num_q_heads", row.params.num_q_heads},
            {"num_kv_heads", row.params.num_kv_heads},
            {"page_size", row.params.page_size},
            {"q_len", row.params.q_len},
            {"batch", row.point.batch()},
            {"lengths", row.point.lengths()},
            {"kv_bytes", row.kv_bytes},
            {"us", if_measured(row.us)},
            {"us_min", if_measured(row.us_min)},
            {"us_max", if_measured(row.us_max)},
            {"gb_per_s", if_measured(row.gb_per_s())},
            {"read_us", if_measured(row.read_us)},
            {"fraction_of_read", if_measured(row.fraction())},
            {"vs_equal_lengths", row.vs_equal ? Json(*row.vs_equal) : Json(nullptr)},
            {"skipped_tiles_fraction", row.skipped_tiles_fraction ? Json(*row.skipped_tiles_fraction) : Json(nullptr)},
            {"division", if_said(row.division)},
            {"nb_sub_seq", if_known(row.nb_sub_seq)},
            {"grid_x", if_known(row.grid_x)},
            {"pdl", if_measured(row.pdl)},
            {"copies", if_measured(row.copies)},
            {"check_ok", if_checked([](BenchRow::Check const& check) { return check.ok; })},
            {"check_rel_l2", if_checked([](BenchRow::Check const& check) { return check.rel_l2; })},
            {"check_blocks", if_checked([](BenchRow::Check const& check) { return check.blocks; })},
            {"check_all_blocks", if_checked([](BenchRow::Check const& check) { return check.all_blocks; })},
            {"check_reason", if_said(row.unchecked)}};
}

// RFC 4180: what has a comma, a quote or a line break is quoted.
std::string csv_cell(Json const& value) {
    if (value.is_null()) return {};
    if (!value.is_string()) return to_text(value);
    std::string const text = value.get<std::string>();
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string quoted = "\"";
    for (char const c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
    return quoted + '"';
}

}  // namespace

BenchSummary summary_of(std::vector<BenchRow> const& rows) {
    BenchSummary summary{rows.size()};
    for (BenchRow const& row : rows) {
        summary.measured += row.outcome == BenchRow::Outcome::kMeasured;
        summary.skipped += row.outcome == BenchRow::Outcome::kSkipped;
        summary.failed += row.outcome == BenchRow::Outcome::kFailed;
        summary.checked += row.check.has_value();
    }
    return summary;
}

std::string bench_table(std::vector<BenchRow> const& rows) {
    bool const with_equal = std::any_of(rows.begin(), rows.end(), [](BenchRow const& row) { return row.vs_equal.has_value(); });
    std::vector<std::vector<std::string>> cells = {{"NAME", "FAMILY", "KV", "D", "HQ", "HKV", "PAGE", "BATCH", "LENGTHS", "US",
                                                    "MIN US", "GB/S", "READ US", "FRACTION", "SUB-SEQS", "GRID", "PDL", "REL L2"}};
    if (with_equal) cells.front().push_back("VS EQUAL");
    bool const with_tiles =
        std::any_of(rows.begin(), rows.end(), [](BenchRow const& row) { return row.skipped_tiles_fraction.has_value(); });
    if (with_tiles) cells.front().push_back("TILES SKIPPED");
    std::string notes;
    for (BenchRow const& row : rows) {
        if (!row.reason.empty()) notes += note(outcome_name(row.outcome), row, row.reason);
        if (!row.unchecked.empty()) notes += note("not checked", row, row.unchecked);
        if (!row.measured()) continue;
        cells.push_back({row.name, row.family, row.kv_dtype, fmt::to_string(row.params.head_dim),
                         fmt::to_string(row.params.num_q_heads), fmt::to_string(row.params.num_kv_heads),
                         fmt::to_string(row.params.page_size), fmt::to_string(row.point.batch()), row.point.lengths(),
                         fmt::format("{:.2f}", row.us), fmt::format("{:.2f}", row.us_min), fmt::format("{:.0f}", row.gb_per_s()),
                         fmt::format("{:.2f}", row.read_us), fmt::format("{:.3f}", row.fraction()), fmt::to_string(row.nb_sub_seq),
                         fmt::to_string(row.grid_x), row.pdl ? "on" : "off",
                         row.check ? fmt::format("{:.1e}", row.check->rel_l2) : "-"});
        if (with_equal) cells.back().push_back(row.vs_equal ? fmt::format("{:.2f}", *row.vs_equal) : "-");
        if (with_tiles)
            cells.back().push_back(row.skipped_tiles_fraction ? fmt::format("{:.3f}", *row.skipped_tiles_fraction) : "-");
    }
    BenchSummary const summary = summary_of(rows);
    return (cells.size() > 1 ? table(cells) : "") + notes +
           fmt::format("{} points: {} measured, {} skipped, {} failed; {} checked\n", summary.points, summary.measured,
                       summary.skipped, summary.failed, summary.checked);
}

Json bench_json(std::vector<BenchRow> const& rows) {
    BenchSummary const summary = summary_of(rows);
    Json list = Json::array();
    for (BenchRow const& row : rows) list.push_back(row_json(row));
    return {{"summary",
             {{"points", summary.points},
              {"measured", summary.measured},
              {"skipped", summary.skipped},
              {"failed", summary.failed},
              {"checked", summary.checked}}},
            {"rows", std::move(list)}};
}

std::string bench_csv(std::vector<BenchRow> const& rows) {
    std::string text;
    Json const heading = row_json({});
    for (auto const& [key, ignored] : heading.items()) text += (text.empty() ? "" : ",") + key;
    text += '\n';
    for (BenchRow const& row : rows) {
        std::string line;
        Json const cells = row_json(row);
        for (auto cell = cells.begin(); cell != cells.end(); ++cell) line += (cell == cells.begin() ? "" : ",") + csv_cell(*cell);
        text += line + '\n';
    }
    return text;
}

}  // namespace xqajit::cli
