#include "params/json_text.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

namespace xqajit {
namespace {

constexpr std::size_t kShownCharacters = 60;  // of a value in an error
constexpr std::size_t kShownSyntaxError = 300;

// How far the parser has read. It reads one character past a number to see that it ends there.
struct Position {
    int line = 1;
    bool after_newline = false;  // the last character read ended a line
};

// Hands the text to the parser and counts lines on the way.
class CountingIterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = char const*;
    using reference = char const&;

    CountingIterator(char const* at, Position* position) : at_(at), position_(position) {}
    reference operator*() const { return *at_; }
    CountingIterator& operator++() {
        position_->after_newline = *at_ == '\n';
        position_->line += position_->after_newline ? 1 : 0;
        ++at_;
        return *this;
    }
    bool operator==(CountingIterator const& other) const { return at_ == other.at_; }
    bool operator!=(CountingIterator const& other) const { return at_ != other.at_; }

private:
    char const* at_;
    Position* position_;
};

class TreeBuilder final : public nlohmann::json::json_sax_t {
public:
    TreeBuilder(Position const& position, char const* what, JsonLimits const& limits)
        : position_(position), what_(what), limits_(limits) {}

    JsonValue take() { return std::move(root_); }
    Status const& status() const { return status_; }

    bool null() override { return add(make(JsonValue::Kind::kNull, "null")) != nullptr; }
    bool boolean(bool value) override {
        JsonValue result = make(JsonValue::Kind::kBoolean, value ? "true" : "false");
        result.integer = value ? 1 : 0;
        return add(std::move(result)) != nullptr;
    }
    bool number_integer(number_integer_t value) override { return number(static_cast<double>(value), std::to_string(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        JsonValue result = make(JsonValue::Kind::kUnsigned, std::to_string(value));
        result.line = number_line();
        result.integer = value;
        result.number = static_cast<double>(value);
        return add(std::move(result)) != nullptr;
    }
    bool number_float(number_float_t value, string_t const& text) override { return number(value, text); }
    bool string(string_t& value) override { return add(make(JsonValue::Kind::kString, std::move(value))) != nullptr; }
    bool binary(binary_t&) override { return false; }
    bool start_object(std::size_t) override { return open(JsonValue::Kind::kObject); }
    bool end_object() override { return close(); }
    bool start_array(std::size_t) override { return open(JsonValue::Kind::kArray); }
    bool end_array() override { return close(); }

    bool key(string_t& name) override {
        auto& members = open_.back()->members;
        for (JsonValue::Member const& member : members)
            if (member.name == name) return fail(fmt::format("{} is given twice: accepted is once in an object", shown_key(name)));
        if (members.size() == kMostMembers)
            return fail(fmt::format("an object has more than {0} keys: accepted are 0..{0}", kMostMembers));
        members.push_back({std::move(name), position_.line, {}});
        return true;
    }

    // The parser's text is "[error number] parse error at line L, column C: what is wrong", or "[error number] what is wrong".
    bool parse_error(std::size_t, std::string const&, nlohmann::detail::exception const& exception) override {
        std::string_view text = exception.what();
        if (std::size_t const end = text.find("] "); end != std::string_view::npos) text.remove_prefix(end + 2);
        int line = number_line();
        constexpr std::string_view kAtLine = "parse error at line ";
        std::size_t const colon = text.find(": ");
        if (text.starts_with(kAtLine) && colon != std::string_view::npos) {
            std::from_chars(text.data() + kAtLine.size(), text.data() + colon, line);
            text.remove_prefix(colon + 2);
        }
        status_ = error_at(line, fmt::format("{} is not JSON: {}", what_, text.substr(0, kShownSyntaxError)));
        return false;
    }

private:
    static constexpr std::size_t kMostMembers = 256;  // bounds the search for a name given twice

    static std::string shown_key(std::string const& name) { return fmt::format("key '{}'", name.substr(0, kShownCharacters)); }

    JsonValue make(JsonValue::Kind kind, std::string text = {}) const {
        JsonValue value;
        value.kind = kind;
        value.line = position_.line;
        value.text = std::move(text);
        return value;
    }

    int number_line() const { return position_.line - (position_.after_newline ? 1 : 0); }

    bool number(double value, std::string text) {
        JsonValue result = make(JsonValue::Kind::kNumber, std::move(text));
        result.line = number_line();
        result.number = value;
        return add(std::move(result)) != nullptr;
    }

    JsonValue* add(JsonValue value) {
        if (++values_ > limits_.values) {
            fail(fmt::format("{} has more than {} values", what_, limits_.values));
            return nullptr;
        }
        JsonValue* slot = &root_;
        if (!open_.empty() && open_.back()->is(JsonValue::Kind::kArray)) {
            slot = &open_.back()->items.emplace_back();
        } else if (!open_.empty()) {
            slot = &open_.back()->members.back().value;
        }
        *slot = std::move(value);
        return slot;
    }

    // A pointer to an open value stays right: its container grows only after it is closed.
    bool open(JsonValue::Kind kind) {
        if (open_.size() == static_cast<std::size_t>(limits_.depth))
            return fail(fmt::format("{} is nested more than {} levels deep", what_, limits_.depth));
        JsonValue* const slot = add(make(kind));
        if (slot != nullptr) open_.push_back(slot);
        return slot != nullptr;
    }

    bool close() {
        open_.pop_back();
        return true;
    }

    bool fail(std::string_view message) {
        status_ = error_at(position_.line, message);
        return false;
    }

    Position const& position_;
    char const* what_;
    JsonLimits limits_;
    JsonValue root_;
    std::vector<JsonValue*> open_;
    std::size_t values_ = 0;
    Status status_;
};

}  // namespace

std::string JsonValue::shown() const {
    bool const cut = text.size() > kShownCharacters;
    std::string const start = text.substr(0, kShownCharacters) + (cut ? "..." : "");
    switch (kind) {
        case Kind::kString:
            return "'" + start + "'";
        case Kind::kArray:
            return items.empty() ? "an empty list" : "a list";
        case Kind::kObject:
            return "an object";
        default:
            return start;
    }
}

Status error_at(int line, std::string_view message) { return invalid_argument(fmt::format("line {}: {}", line, message)); }

Result<JsonValue> parse_json(std::string_view text, char const* what, JsonLimits const& limits) {
    if (text.size() > limits.bytes)
        return error_at(1, fmt::format("{} has {} bytes: accepted are at most {}", what, text.size(), limits.bytes));
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
        return error_at(1, fmt::format("{} is empty: accepted is a JSON object", what));
    Position position;
    TreeBuilder builder(position, what, limits);
    bool const parsed = nlohmann::json::sax_parse(CountingIterator(text.data(), &position),
                                                  CountingIterator(text.data() + text.size(), &position), &builder);
    if (!parsed) return builder.status();
    return builder.take();
}

}  // namespace xqajit
