// JSON as a tree that remembers its lines, so that an error can say where it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace xqajit {

struct JsonValue {
    enum class Kind { kNull, kBoolean, kUnsigned, kNumber, kString, kArray, kObject };
    Kind kind = Kind::kNull;
    int line = 1;
    std::string text;           // a string's value; a scalar as it would be written
    std::uint64_t integer = 0;  // of kUnsigned; a boolean as 0 or 1
    double number = 0;          // of kUnsigned and kNumber
    std::vector<JsonValue> items;
    struct Member;
    std::vector<Member> members;  // in the order of the text; no name twice

    bool is(Kind wanted) const { return kind == wanted; }
    std::string shown() const;  // for an error: 24, 'abc', an object
};

struct JsonValue::Member {
    std::string name;
    int line = 1;
    JsonValue value;
};

struct JsonLimits {
    std::size_t bytes;
    int depth;
    std::size_t values;
};

// what: the document's name in errors. INVALID_ARGUMENT begins with "line N: ".
Result<JsonValue> parse_json(std::string_view text, char const* what, JsonLimits const& limits);

Status error_at(int line, std::string_view message);  // INVALID_ARGUMENT "line N: message"

}  // namespace xqajit
