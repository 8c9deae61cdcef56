// XQAParams as a table: what printing, JSON and validation walk over. One row a field, in struct order, struct_size left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "params/xqa_params.h"

namespace xqajit {

using FieldMember = std::variant<std::int32_t XQAParams::*, std::uint32_t XQAParams::*, float XQAParams::*>;

struct Field {
    char const* name;
    FieldMember member;
    std::span<char const* const> names;  // of an enumeration, indexed by value; empty for numbers and flags
    bool required = false;
};

std::span<Field const> params_fields();
Field const* find_field(std::string_view name);  // null if there is none

// An int32 that is no enumeration is a flag, 0 or 1.
inline bool is_flag(Field const& field) {
    return field.names.empty() && std::holds_alternative<std::int32_t XQAParams::*>(field.member);
}

std::string value_text(Field const& field, XQAParams const& params);  // "bf16", "64", "0.125"
bool equal_value(Field const& field, XQAParams const& a, XQAParams const& b);

// A rule of validate(). The first rule of each field states its range by itself.
struct ParamsRule {
    char const* field;
    bool (*holds)(XQAParams const&);
    char const* accepted;  // with its verb: "are 1..64"
};

std::span<ParamsRule const> params_rules();                             // in the order in which they are checked
ParamsRule const* first_broken_rule(XQAParams const& params);           // of a normalized shape; null if it is valid
char const* accepted_range(std::string_view field);                     // of the field's first rule
std::string describe(ParamsRule const& rule, XQAParams const& params);  // "head_dim is 72: accepted are multiples of 16 in 16..256"

}  // namespace xqajit
