#include "base/json.h"

#include <nlohmann/json.hpp>

namespace xqajit {

std::string to_text(nlohmann::ordered_json const& json, int indent) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string plain_text(nlohmann::ordered_json const& value) {
    return value.is_string() ? value.get<std::string>() : to_text(value);
}

}  // namespace xqajit
