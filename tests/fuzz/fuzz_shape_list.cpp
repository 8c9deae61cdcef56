// parse_shape_list() and parse_shape() on any text: no crash, errors that give a line, and shapes that survive their own JSON.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "params/shape_list.h"

using namespace xqajit;

namespace {

constexpr std::size_t kCheckedEntries = 50;  // a cross product repeats itself

void require(bool condition) {
    if (!condition) std::abort();
}

void check_error(Status const& status) {
    require(status.code() == XQAJIT_INVALID_ARGUMENT && status.message().rfind("line ", 0) == 0);
}

void check_entry(ShapeEntry const& entry) {
    require(validate(entry.params).ok());
    Result<ShapeEntry> const again = parse_shape(to_json(entry.params));
    require(again.ok() && std::memcmp(&again->params, &entry.params, sizeof(XQAParams)) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    std::string_view const text(reinterpret_cast<char const*>(data), size);
    Result<std::vector<ShapeEntry>> const list = parse_shape_list(text);
    if (!list.ok()) check_error(list.status());
    for (std::size_t i = 0; list.ok() && i < list->size() && i < kCheckedEntries; ++i) check_entry((*list)[i]);

    Result<ShapeEntry> const shape = parse_shape(text);
    if (shape.ok())
        check_entry(*shape);
    else
        check_error(shape.status());
    return 0;
}
