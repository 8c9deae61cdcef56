#include "service/shape_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "params/fields.h"
#include "params/shape_list.h"

namespace xqajit {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMaxListBytes = 16u << 20;
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::milliseconds kLockStep{10};

// Ranks record into one file: between reading and replacing it nobody else may. The lock ends with the descriptor; a file system
// without locks costs at most a lost shape. Whoever holds the lock for longer must not hold up a launch.
Status lock(int directory, std::string const& folder, std::chrono::milliseconds patience) {
    auto const deadline = std::chrono::steady_clock::now() + patience;
    while (::flock(directory, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) return {};
        if (std::chrono::steady_clock::now() >= deadline)
            return unavailable(fmt::format("{} is locked by another process", folder));
        std::this_thread::sleep_for(kLockStep);
    }
    return {};
}

struct RecordedList {
    Json document = {{"version", 1}, {"shapes", Json::array()}};
    std::vector<ShapeEntry> entries;
};

// A list without shapes can be added to, though prewarm has no use for it; so can an empty file.
Result<RecordedList> parse_list(std::string const& text) {
    RecordedList list;
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return list;
    list.document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    bool const no_shapes = list.document.is_object() && list.document.contains("shapes") && list.document["shapes"].is_array() &&
                           list.document["shapes"].empty();
    if (no_shapes) return list;
    Result<std::vector<ShapeEntry>> entries = parse_shape_list(text);
    if (!entries.ok()) return entries.status();
    if (!list.document.is_object()) return invalid_argument("the shape list is no JSON in UTF-8");
    list.entries = std::move(entries).value();
    return list;
}

bool same_shape(XQAParams const& a, XQAParams const& b) {
    auto const fields = params_fields();
    return std::all_of(fields.begin(), fields.end(), [&](Field const& field) { return equal_value(field, a, b); });
}

// An entry takes what it does not name from the list's defaults: it names all that they do.
Json entry_of(XQAParams const& params, Json const& defaults) {
    Json entry = Json::parse(to_json(params), nullptr, /*allow_exceptions=*/false);
    for (auto const& [key, unused] : defaults.items()) {
        Field const* const field = find_field(key);
        if (key == "name")
            entry[key] = "";
        else if (key == "tp")
            entry[key] = 1;
        else if (field != nullptr && !entry.contains(key))
            entry[key] = field->names.empty() ? Json::parse(value_text(*field, params), nullptr, /*allow_exceptions=*/false)
                                              : Json(value_text(*field, params));
    }
    return entry;
}

}  // namespace

void ShapeRecorder::add(XQAParams const& params) {
    if (path_.empty()) return;
    std::string shape = to_json(params);
    std::lock_guard const lock(mutex_);
    if (!seen_.insert(std::move(shape)).second) return;
    pending_.push_back(params);
    Status const status = append_pending(warned_ ? std::chrono::milliseconds{0} : kPatience);
    if (status.ok()) {
        pending_.clear();
    } else if (!warned_) {
        warned_ = true;
        log::warning(fmt::format("XQAJIT_RECORD_SHAPES is '{}': shapes are not recorded: {}", path_, status.message()));
    }
}

Status ShapeRecorder::append_pending(std::chrono::milliseconds patience) const {
    std::filesystem::path const path(path_);
    std::string const folder = path.has_parent_path() ? path.parent_path().string() : ".";
    UniqueFd const directory = above_standard(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid()) return unavailable(fmt::format("{}: {}", folder, errno_text(errno)));
    XQAJIT_RETURN_IF_ERROR(lock(directory.get(), folder, patience));

    Result<std::string> const text = read_file(path_, kMaxListBytes);
    if (!text.ok() && text.status().code() != XQAJIT_UNAVAILABLE) return text.status();
    Result<RecordedList> list = parse_list(text.ok() ? *text : std::string());
    if (!list.ok()) return list.status();
    Json& document = list->document;
    Json const defaults = document.value("defaults", Json::object());
    std::size_t const before = document["shapes"].size();
    for (XQAParams const& params : pending_) {
        bool const known = std::any_of(list->entries.begin(), list->entries.end(),
                                       [&](ShapeEntry const& entry) { return same_shape(entry.params, params); });
        if (!known) document["shapes"].push_back(entry_of(params, defaults));
    }
    if (document["shapes"].size() == before) return {};
    std::string const whole = to_text(document, 1) + "\n";
    XQAJIT_RETURN_IF_ERROR(parse_shape_list(whole).status());
    return write_file_atomic_at(directory.get(), path.filename().string(), whole);
}

}  // namespace xqajit
