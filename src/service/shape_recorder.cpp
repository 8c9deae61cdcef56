#include "service/shape_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace xqajit {

namespace {
constexpr std::uint64_t kMaxListBytes = 16u << 20;
}

void ShapeRecorder::add(XQAParams const& normalized) {
    if (path_.empty()) return;
    std::string const shape = to_json(normalized);
    std::lock_guard const lock(mutex_);
    if (!recorded_.insert(shape).second) return;
    Status const status = append(shape);
    if (!status.ok() && !warned_) {
        warned_ = true;
        log::warning("XQAJIT_RECORD_SHAPES: shapes are not recorded: " + status.message());
    }
}

Status ShapeRecorder::append(std::string const& shape) const {
    std::filesystem::path const path(path_);
    std::string const folder = path.has_parent_path() ? path.parent_path().string() : ".";
    UniqueFd const directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid()) return unavailable(fmt::format("{}: {}", folder, errno_text(errno)));
    // Ranks record into one file: between reading and replacing it nobody else may. The lock ends with the descriptor; a file system
    // without locks costs at most a lost shape.
    ::flock(directory.get(), LOCK_EX);

    using Json = nlohmann::ordered_json;
    Json list = {{"version", 1}, {"shapes", Json::array()}};
    Result<std::string> const text = read_file(path_, kMaxListBytes);
    if (text.ok()) {
        list = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
        if (!list.is_object() || !list.contains("shapes") || !list["shapes"].is_array()) {
            return invalid_argument(fmt::format("{} exists and is no shape list", path_));
        }
    } else if (text.status().code() != XQAJIT_UNAVAILABLE) {
        return text.status();
    }
    Json entry = Json::parse(shape, nullptr, /*allow_exceptions=*/false);
    Json& shapes = list["shapes"];
    if (std::find(shapes.begin(), shapes.end(), entry) != shapes.end()) return {};
    shapes.push_back(std::move(entry));
    return write_file_atomic_at(directory.get(), path.filename().string(), to_text(list, 1) + "\n");
}

}  // namespace xqajit
