#include "params/shape_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/nearest.h"
#include "params/fields.h"
#include "params/json_text.h"

namespace xqajit {
namespace {

using Kind = JsonValue::Kind;

constexpr std::size_t kMaxEntries = 100'000;
constexpr JsonLimits kLimits{std::size_t{16} << 20, 64, 2'000'000};
constexpr char kTpRange[] = "are 1..4096";

// --- keys ---

std::vector<std::string_view> shape_keys() {
    std::vector<std::string_view> keys{"name", "tp"};
    for (Field const& field : params_fields()) keys.emplace_back(field.name);
    return keys;
}

Status unknown_key(int line, std::string_view key, std::span<std::string_view const> known) {
    std::string list;
    for (std::string_view const word : known) list += (list.empty() ? "" : ", ") + std::string(word);
    return error_at(line, fmt::format("unknown key '{}'{}: accepted are {}", key.substr(0, 64), did_you_mean(key, known), list));
}

Status check_keys(JsonValue const& object, std::span<std::string_view const> known) {
    for (auto const& member : object.members)
        if (std::find(known.begin(), known.end(), member.name) == known.end()) return unknown_key(member.line, member.name, known);
    return {};
}

// --- one value of one key ---

Status value_error(std::string_view key, JsonValue const& value, std::string_view accepted) {
    return error_at(value.line, fmt::format("{} is {}: accepted {}", key, value.shown(), accepted));
}

Status name_error(Field const& field, JsonValue const& value) {
    std::vector<std::string_view> const known(field.names.begin(), field.names.end());
    std::string const hint = value.is(Kind::kString) ? did_you_mean(value.text, known) : "";
    return error_at(value.line,
                    fmt::format("{} is {}{}: accepted {}", field.name, value.shown(), hint, accepted_range(field.name)));
}

Status set_field(Field const& field, JsonValue const& value, XQAParams& params) {
    auto const wrong = [&] { return value_error(field.name, value, accepted_range(field.name)); };
    if (!field.names.empty()) {
        auto const member = std::get<std::int32_t XQAParams::*>(field.member);
        for (std::size_t i = 0; value.is(Kind::kString) && i < field.names.size(); ++i)
            if (value.text == field.names[i]) {
                params.*member = static_cast<std::int32_t>(i);
                return {};
            }
        return name_error(field, value);
    }
    if (auto const* const number = std::get_if<float XQAParams::*>(&field.member)) {
        if (!value.is(Kind::kUnsigned) && !value.is(Kind::kNumber)) return wrong();
        auto const narrowed = static_cast<float>(value.number);
        // A value that a float rounds to 0 would silently mean "default".
        if (!std::isfinite(narrowed) || (narrowed == 0 && value.number != 0)) return wrong();
        params.** number = narrowed;
        return {};
    }
    if (is_flag(field)) {
        if ((!value.is(Kind::kBoolean) && !value.is(Kind::kUnsigned)) || value.integer > 1) return wrong();
        params.*std::get<std::int32_t XQAParams::*>(field.member) = static_cast<std::int32_t>(value.integer);
        return {};
    }
    if (!value.is(Kind::kUnsigned) || value.integer > std::numeric_limits<std::uint32_t>::max()) return wrong();
    params.*std::get<std::uint32_t XQAParams::*>(field.member) = static_cast<std::uint32_t>(value.integer);
    return {};
}

Status set_key(std::string_view key, JsonValue const& value, ShapeEntry& entry) {
    if (key == "name") {
        if (!value.is(Kind::kString)) return value_error(key, value, "are strings");
        entry.name = value.text;
        return {};
    }
    if (key == "tp") {
        if (!value.is(Kind::kUnsigned) || value.integer < 1 || value.integer > 4096) return value_error(key, value, kTpRange);
        entry.tp = static_cast<std::uint32_t>(value.integer);
        return {};
    }
    return set_field(*find_field(key), value, entry.params);
}

// --- one entry ---

struct Choice {
    std::string_view key;
    JsonValue const* value;  // a scalar
};

int line_of(std::string_view key, std::span<Choice const> choices, int otherwise) {
    for (Choice const& choice : choices)
        if (choice.key == key) return choice.value->line;
    return otherwise;
}

// What tp makes of the heads depends on several keys, some of them perhaps of the defaults: the error names the shape itself.
std::string shape_prefix(ShapeEntry const& entry) {
    return entry.name.empty() ? std::string() : fmt::format("shape '{}': ", entry.name.substr(0, 64));
}

// The heads of one of tp ranks: query heads are divided; KV heads are divided, or replicated where there are fewer than ranks.
Status divide_heads(int line, ShapeEntry& entry) {
    XQAParams& params = entry.params;
    std::uint32_t const kv_heads = params.num_kv_heads;
    bool const divides =
        params.num_q_heads % entry.tp == 0 && kv_heads != 0 && (kv_heads % entry.tp == 0 || entry.tp % kv_heads == 0);
    if (!divides)
        return error_at(
            line, fmt::format(
                      "{}tp is {}: accepted are divisors of num_q_heads ({}) that divide num_kv_heads ({}) or are multiples of it",
                      shape_prefix(entry), entry.tp, params.num_q_heads, kv_heads));
    params.num_q_heads /= entry.tp;
    params.num_kv_heads = std::max<std::uint32_t>(1, kv_heads / entry.tp);
    return {};
}

Result<ShapeEntry> make_entry(std::span<Choice const> choices, int line) {
    ShapeEntry entry;
    entry.params = XQAParams{};
    entry.params.struct_size = sizeof(XQAParams);
    for (Choice const& choice : choices) XQAJIT_RETURN_IF_ERROR(set_key(choice.key, *choice.value, entry));
    for (Field const& field : params_fields())
        if (field.required && line_of(field.name, choices, 0) == 0)
            return error_at(line, fmt::format("{} is missing: accepted {}", field.name, accepted_range(field.name)));
    if (entry.tp > 1) XQAJIT_RETURN_IF_ERROR(divide_heads(line, entry));
    Result<XQAParams> normalized = normalize(entry.params);
    if (!normalized.ok()) return normalized.status();
    entry.params = *normalized;
    if (ParamsRule const* const broken = first_broken_rule(entry.params)) {
        if (entry.tp > 1 && std::string_view(broken->field).ends_with("_heads"))
            return error_at(line, fmt::format("{}with tp {}, {}", shape_prefix(entry), entry.tp, describe(*broken, entry.params)));
        return error_at(line_of(broken->field, choices, line), describe(*broken, entry.params));
    }
    return entry;
}

// --- the cross product ---

struct Axis {
    std::string_view key;
    JsonValue const* value;  // a scalar, or a list of them

    std::size_t size() const { return value->is(Kind::kArray) ? value->items.size() : 1; }
    JsonValue const& at(std::size_t index) const { return value->is(Kind::kArray) ? value->items[index] : *value; }
};

Status check_axis(Axis const& axis) {
    char const* const range = axis.key == "name" ? "are strings" : axis.key == "tp" ? kTpRange : accepted_range(axis.key);
    if (axis.size() == 0) return value_error(axis.key, *axis.value, range);
    for (std::size_t i = 0; i < axis.size(); ++i)
        if (axis.at(i).is(Kind::kArray) || axis.at(i).is(Kind::kObject)) return value_error(axis.key, axis.at(i), range);
    return {};
}

// A shape's own keys replace those of the defaults.
std::vector<Axis> merge(JsonValue const* defaults, JsonValue const& shape) {
    std::vector<Axis> axes;
    if (defaults != nullptr)
        for (auto const& member : defaults->members) axes.push_back({member.name, &member.value});
    for (auto const& member : shape.members) {
        auto const found = std::find_if(axes.begin(), axes.end(), [&](Axis const& axis) { return axis.key == member.name; });
        if (found != axes.end())
            found->value = &member.value;
        else
            axes.push_back({member.name, &member.value});
    }
    return axes;
}

// Appends one entry for each combination; the last axis varies fastest.
Status expand(std::span<Axis const> axes, int line, std::vector<ShapeEntry>& entries) {
    std::size_t total = 1;
    for (Axis const& axis : axes) {
        XQAJIT_RETURN_IF_ERROR(check_axis(axis));
        total *= axis.size();  // both factors are below 2^21, and the loop stops above 100 000
        if (total > kMaxEntries - entries.size())
            return error_at(line, fmt::format("shapes make more than {0} entries: accepted are 1..{0}", kMaxEntries));
    }
    std::vector<Choice> choices(axes.size());
    for (std::size_t combination = 0; combination < total; ++combination) {
        std::size_t rest = combination;
        for (std::size_t i = axes.size(); i-- > 0; rest /= axes[i].size())
            choices[i] = {axes[i].key, &axes[i].at(rest % axes[i].size())};
        Result<ShapeEntry> entry = make_entry(choices, line);
        if (!entry.ok()) return entry.status();
        entries.push_back(std::move(*entry));
    }
    return {};
}

// --- the document ---

JsonValue::Member const* find_member(JsonValue const& object, std::string_view name) {
    for (auto const& member : object.members)
        if (member.name == name) return &member;
    return nullptr;
}

Status check_version(JsonValue const& root) {
    auto const* const version = find_member(root, "version");
    if (version == nullptr) return error_at(root.line, "version is missing: accepted is 1");
    bool const known = version->value.is(Kind::kUnsigned) && version->value.integer == 1;
    return known ? Status() : value_error("version", version->value, "is 1");
}

}  // namespace

Result<std::vector<ShapeEntry>> parse_shape_list(std::string_view text) {
    Result<JsonValue> const parsed = parse_json(text, "the shape list", kLimits);
    if (!parsed.ok()) return parsed.status();
    JsonValue const& root = *parsed;
    if (!root.is(Kind::kObject)) return value_error("the shape list", root, "is an object with version, defaults and shapes");
    static constexpr std::array<std::string_view, 3> kRootKeys{"version", "defaults", "shapes"};
    XQAJIT_RETURN_IF_ERROR(check_keys(root, kRootKeys));
    XQAJIT_RETURN_IF_ERROR(check_version(root));

    std::vector<std::string_view> const keys = shape_keys();
    auto const* const defaults = find_member(root, "defaults");
    if (defaults != nullptr) {
        if (!defaults->value.is(Kind::kObject))
            return value_error("defaults", defaults->value, "is an object with the keys of a shape");
        XQAJIT_RETURN_IF_ERROR(check_keys(defaults->value, keys));
    }
    auto const* const shapes = find_member(root, "shapes");
    if (shapes == nullptr) return error_at(root.line, "shapes is missing: accepted is a list of objects");
    if (!shapes->value.is(Kind::kArray) || shapes->value.items.empty())
        return value_error("shapes", shapes->value, "is a list of 1 or more objects");

    std::vector<ShapeEntry> entries;
    for (JsonValue const& shape : shapes->value.items) {
        if (!shape.is(Kind::kObject)) return value_error("an entry of shapes", shape, "is an object");
        XQAJIT_RETURN_IF_ERROR(check_keys(shape, keys));
        XQAJIT_RETURN_IF_ERROR(expand(merge(defaults ? &defaults->value : nullptr, shape), shape.line, entries));
    }
    return entries;
}

Result<ShapeEntry> parse_shape(std::string_view text) {
    Result<JsonValue> const parsed = parse_json(text, "the shape", kLimits);
    if (!parsed.ok()) return parsed.status();
    if (!parsed->is(Kind::kObject)) return value_error("the shape", *parsed, "is an object");
    XQAJIT_RETURN_IF_ERROR(check_keys(*parsed, shape_keys()));
    std::vector<Choice> choices;
    for (auto const& member : parsed->members) {
        if (member.value.is(Kind::kArray)) return value_error(member.name, member.value, "is a single value");
        choices.push_back({member.name, &member.value});
    }
    return make_entry(choices, parsed->line);
}

}  // namespace xqajit
