#include "exposition.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

namespace xqajit::testing {
namespace {

std::regex const kHelp(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+))");
std::regex const kType(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram|summary|untyped))");
std::regex const kLabels(
    R"re((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")*)re");
std::regex const kSample(R"(([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+))");
std::regex const kEdge(R"re((?:^|,)le="([^"]*)"$)re");

bool ends_with(std::string const& text, std::string const& end) { return text.ends_with(end); }

double number(std::string const& text, bool& good) {
    char* end = nullptr;
    double const value = text == "+Inf" ? std::numeric_limits<double>::infinity() : std::strtod(text.c_str(), &end);
    good = text == "+Inf" || (!text.empty() && *end == '\0' && std::isfinite(value));
    return value;
}

struct Series {  // of one histogram and one set of the other labels
    double edge = -std::numeric_limits<double>::infinity(), bucket = 0;
    bool has_sum = false, has_count = false;
};

class Parser {
public:
    Exposition parse(std::string const& text) {
        if (text.empty() || text.back() != '\n') fault("the last line has no end");
        std::istringstream lines(text);
        for (line_ = ""; std::getline(lines, line_);) {
            std::smatch match;
            if (std::regex_match(line_, match, kHelp))
                begin(match[1]);
            else if (std::regex_match(line_, match, kType))
                set_type(match[1], match[2]);
            else if (std::regex_match(line_, match, kSample))
                add_sample(match[1], match[2], match[3]);
            else
                fault("is neither HELP, TYPE nor a sample");
        }
        for (auto const& [name, series] : series_) {
            line_ = name;
            if (!series.has_sum || !series.has_count || !std::isinf(series.edge)) fault("lacks a sum, a count or the bucket +Inf");
        }
        return result_;
    }

private:
    void fault(std::string const& what) { result_.faults.push_back(line_ + ": " + what); }

    void begin(std::string const& name) {
        if (!groups_.insert(name).second) fault("a second group of the metric");
        current_ = name;
        for (char const* unit : {"_ms", "milli", "micro", "nano", "minutes", "hours", "kilo", "mega", "percent"})
            if (name.find(unit) != std::string::npos) fault("no base unit");
        for (char const c : name)
            if (c == ':' || (c >= 'A' && c <= 'Z')) fault("a colon or a capital");
        for (char const* type : {"counter", "gauge", "histogram", "summary"})
            if (name.find(type) != std::string::npos) fault("its type in its name");
    }

    void set_type(std::string const& name, std::string const& type) {
        if (name != current_ || result_.types.contains(name)) fault("not after its HELP");
        result_.types[name] = type;
        if ((type == "counter") != ends_with(name, "_total")) fault("counters, and no others, end in _total");
        if (type == "histogram" && !ends_with(name, "_seconds") && !ends_with(name, "_bytes")) fault("no unit");
    }

    void add_sample(std::string const& name, std::string const& labels, std::string const& value_text) {
        if (!labels.empty() && !std::regex_match(labels, kLabels)) fault("labels");
        bool good = false;
        double const value = number(value_text, good);
        if (!good || value < 0) fault("no number of 0 or more");
        if (!result_.samples.emplace(labels.empty() ? name : name + "{" + labels + "}", value).second) fault("a second time");
        if (!result_.types.contains(current_)) return fault("before its TYPE");
        std::string const type = result_.types[current_];
        if (type != "histogram") {
            if (name != current_) fault("not below its TYPE");
            return;
        }
        if (!name.starts_with(current_)) return fault("not below its TYPE");
        std::string const part = name.substr(current_.size());
        if (part == "_bucket") {
            std::smatch edge;
            if (!std::regex_search(labels, edge, kEdge)) return fault("a bucket without le");
            Series& series = series_[labels.substr(0, static_cast<std::size_t>(edge.position(0)))];
            double const upper = number(edge[1], good);
            if (!good || upper <= series.edge || value < series.bucket) fault("le and counts must grow");
            series.edge = upper;
            series.bucket = value;
        } else if (part == "_sum" && series_.contains(labels)) {
            series_[labels].has_sum = true;
        } else if (part == "_count" && series_.contains(labels)) {
            series_[labels].has_count = true;
            if (value != series_[labels].bucket) fault("is not what the bucket +Inf has");
        } else {
            fault("no part of a histogram, or before its buckets");
        }
    }

    Exposition result_;
    std::string line_, current_;
    std::set<std::string> groups_;
    std::map<std::string, Series> series_;
};

}  // namespace

Exposition parse_exposition(std::string const& text) { return Parser().parse(text); }

}  // namespace xqajit::testing
