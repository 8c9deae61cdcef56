#include "shape_flags.h"
#include "base/json.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

namespace xqajit::cli {
namespace {

struct ShapeField {
    char const* name;
    char const* values;  // what help shows; "" for a switch
    char const* help;
};

// clang-format off
constexpr ShapeField kShapeFields[] = {
    {"q_dtype", "fp16|bf16", "type of Q"},
    {"kv_dtype", "fp16|bf16|fp8_e4m3|int8", "type of the cache; default: q-dtype"},
    {"out_dtype", "fp16|bf16|fp8_e4m3", "type of the output; default: q-dtype"},
    {"numeric", "exact16|fp8", "how an 8-bit cache enters the arithmetic"},
    {"num_q_heads", "N", "query heads"},
    {"num_kv_heads", "N", "KV heads"},
    {"head_dim", "N", "elements of a Q or K head"},
    {"head_dim_v", "N", "elements of a V head; default: head-dim"},
    {"page_size", "TOKENS", "tokens a page; 0: contiguous"},
    {"beam_width", "N", "beams of a request"},
    {"spec_dec", "none|linear|tree", "how draft tokens see each other"},
    {"q_len", "TOKENS", "longest draft"},
    {"mla", "", "V is the first part of the K row"},
    {"sinks", "", "a logit a head joins the denominator"},
    {"lse", "", "the log-sum-exp is written"},
    {"input_kv", "", "the launch appends new K and V itself"},
    {"rope_style", "none|neox|gptj", "with input-kv"},
    {"rotary_dim", "N", "with input-kv; default: head-dim"},
    {"skip_softmax", "", "tiles far below the maximum are skipped"},
    {"sliding_window", "TOKENS", "newest tokens visible; 0: all"},
    {"softcap", "CAP", "scores become cap * tanh(score / cap)"},
    {"qk_scale", "SCALE", "default: 1 / sqrt(head-dim)"},
    {"skip_softmax_threshold", "FACTOR", "with skip-softmax"},
    {"division", "static|balanced|invariant", "how KV is divided over blocks"},
    {"nb_sub_seq", "N", "sub-sequences under static division"},
    {"pdl", "", "programmatic dependent launch"},
    {"non_causal", "", "refused by rule"},
    {"cross_attention", "", "refused by rule"},
    {"position_shift", "", "refused by rule"},
    {"sink_tokens", "N", "refused by rule"},
    {"chunked_attention", "N", "refused by rule"},
    {"position", "KIND", "how positions enter"},
    {"on_miss", "compile|fallback|refuse", "what a launch does whose kernel is not loaded"},
    {"tp", "N", "tensor-parallel ranks: heads are divided by it"},
};
// clang-format on

std::string flag_of(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
}

// A bare switch arrives as "true".
std::string check_switch(std::string const& value) {
    for (char const* accepted : {"true", "false", "1", "0"})
        if (value == accepted) return {};
    return "'" + value + "': accepted are true, false, 1, 0";
}

// The flags' JSON has one line, which nobody wrote.
std::string without_line(std::string const& text) {
    constexpr char kLine[] = "line 1: ";
    return text.starts_with(kLine) ? text.substr(sizeof kLine - 1) : text;
}

std::string shape_json(nlohmann::ordered_json object, std::vector<ShapeFlag> const& flags) {
    for (ShapeFlag const& flag : flags) {
        // A number or a truth value as one, anything else as a text: the library says what it thinks of it.
        nlohmann::ordered_json value = nlohmann::ordered_json::parse(flag.value, nullptr, /*allow_exceptions=*/false);
        object[flag.field] = value.is_number() || value.is_boolean() ? std::move(value) : nlohmann::ordered_json(flag.value);
    }
    return to_text(object);
}

xqajit_params parsed(std::string const& json) {
    try {
        return params_from_json(json);
    } catch (Error const& error) {
        throw Error(error.code(), without_line(error.what()));
    }
}

}  // namespace

ShapeFlags::ShapeFlags(CLI::App& command) {
    for (ShapeField const& field : kShapeFields) {
        Slot& slot = slots_.emplace_back(Slot{field.name, "", nullptr});
        bool const is_switch = *field.values == '\0';
        slot.option = is_switch ? command.add_flag(flag_of(field.name), slot.value, field.help)->check(&check_switch, "")
                                : command.add_option(flag_of(field.name), slot.value, field.help)->type_name(field.values);
        slot.option->group("Shape");
    }
}

std::vector<ShapeFlag> ShapeFlags::given() const {
    std::vector<ShapeFlag> flags;
    for (Slot const& slot : slots_)
        if (slot.option->count() > 0) flags.push_back({slot.field, slot.value});
    return flags;
}

xqajit_params shape_of(std::vector<ShapeFlag> const& flags) {
    std::string missing;
    for (char const* required : {"q_dtype", "num_q_heads", "num_kv_heads", "head_dim"}) {
        auto const gives = [&](ShapeFlag const& flag) { return flag.field == required; };
        if (std::none_of(flags.begin(), flags.end(), gives)) missing += (missing.empty() ? "" : ", ") + flag_of(required);
    }
    if (!missing.empty()) throw Error(XQAJIT_INVALID_ARGUMENT, "the shape's flags lack " + missing);
    return parsed(shape_json(nlohmann::ordered_json::object(), flags));
}

std::vector<NamedShape> shapes_of(Service& service, std::string const& file, std::vector<ShapeFlag> const& flags) {
    if (file.empty()) return {{"", shape_of(flags)}};
    std::vector<NamedShape> shapes;
    auto const list = nlohmann::ordered_json::parse(service.parse_shapes(read_text_file(file)));
    for (auto const& entry : list["entries"])
        shapes.push_back({entry["name"].get<std::string>(), parsed(shape_json(entry["params"], flags))});
    return shapes;
}

}  // namespace xqajit::cli
