#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench_report.h"

namespace xqajit::cli {
namespace {

constexpr double kLeft = 60;
constexpr double kTop = 20;
constexpr double kWidth = 560;
constexpr double kHeight = 360;

std::string xml_text(std::string const& text) {
    std::string safe;
    for (char const c : printable(text)) {
        if (c == '<')
            safe += "&lt;";
        else if (c == '&')
            safe += "&amp;";
        else
            safe += c;
    }
    return safe;
}

struct Line {
    std::string label;
    std::vector<std::pair<double, double>> points;  // log2 of the KV bytes, fraction
};

std::vector<Line> lines_of(std::vector<BenchRow> const& rows) {
    std::vector<Line> lines;
    for (BenchRow const& row : rows) {
        if (!row.measured() || row.kv_bytes == 0) continue;
        std::string const label = row.name + ", " + row.family;
        auto line = std::find_if(lines.begin(), lines.end(), [&](Line const& other) { return other.label == label; });
        if (line == lines.end()) line = lines.insert(lines.end(), {label, {}});
        line->points.emplace_back(std::log2(static_cast<double>(row.kv_bytes)), row.fraction());
    }
    for (Line& line : lines) std::sort(line.points.begin(), line.points.end());
    return lines;
}

}  // namespace

std::string bench_svg(std::vector<BenchRow> const& rows) {
    std::vector<Line> const lines = lines_of(rows);
    double least = 20;  // 1 MiB .. 2 MiB where there is nothing to show
    double most = 21;
    double top = 1;
    bool first = true;
    for (Line const& line : lines)
        for (auto const& [x, y] : line.points) {
            least = first ? std::floor(x) : std::min(least, std::floor(x));
            most = std::max(first ? least + 1 : most, std::ceil(x));
            top = std::max(top, y);
            first = false;
        }
    auto const at_x = [&](double x) { return kLeft + (x - least) / (most - least) * kWidth; };
    auto const at_y = [&](double y) { return kTop + (1 - y / top) * kHeight; };
    double const bottom = kTop + kHeight;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kLeft + kWidth + 380, std::max(bottom + 60, kTop + 20 * static_cast<double>(lines.size()) + 20));
    for (double y = 0; y <= top; y += 0.2)
        svg += fmt::format(
            "<path d=\"M{0} {1:.1f}h{2}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.1f}</text>\n",
            kLeft, at_y(y), kWidth, kLeft - 6, at_y(y) + 4, y);
    double const step = std::ceil((most - least) / 8);
    for (double x = least; x <= most; x += step)
        svg += fmt::format(
            "<path d=\"M{0:.1f} {1}v{2}\" stroke=\"#ddd\"/><text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
            at_x(x), kTop, kHeight, bottom + 18, human_bytes(std::uint64_t{1} << static_cast<unsigned>(x)));
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">KV bytes (fraction of the read roofline over them)</text>\n",
                       kLeft + kWidth / 2, bottom + 40);
    for (std::size_t n = 0; n < lines.size(); ++n) {
        constexpr char const* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
        std::string const colour = kColours[n % std::size(kColours)];
        std::string path;
        for (auto const& [x, y] : lines[n].points) {
            path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", at_x(x), at_y(y));
            svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", at_x(x), at_y(y), colour);
        }
        double const y = kTop + 20 * static_cast<double>(n) + 12;
        svg += fmt::format("<path d=\"{0}\" fill=\"none\" stroke=\"{1}\"/><text x=\"{2}\" y=\"{3}\" fill=\"{1}\">{4}</text>\n",
                           path, colour, kLeft + kWidth + 16, y, xml_text(lines[n].label));
    }
    return svg + "</svg>\n";
}

}  // namespace xqajit::cli
