#include "cache/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

namespace xqajit::cache {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

Status failure(std::string const& what, int error) { return unavailable(what + ": " + errno_text(error)); }

std::string wrong_owner(struct stat const& file) {
    uid_t const self = ::geteuid();
    if (file.st_uid == self || file.st_uid == 0) return {};
    return self == 0 ? fmt::format("is owned by uid {}: accepted is 0", file.st_uid)
                     : fmt::format("is owned by uid {}: accepted are 0 and {}", file.st_uid, self);
}

// Only what is missing is made: an existing parent may refuse even the attempt (an automounter, a read-only root).
int make_directory_with_parents(std::filesystem::path const& path) {
    if (::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST) return 0;
    if (errno != ENOENT || !path.has_parent_path() || path.parent_path() == path) return errno;
    if (int const error = make_directory_with_parents(path.parent_path()); error != 0) return error;
    return ::mkdir(path.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
}

// Not valid if it is missing and `create` is false.
Result<UniqueFd> open_named(std::filesystem::path const& path, bool create) {
    std::string const what = fmt::format("cache directory {}", path.string());
    struct stat named {};
    if (::lstat(path.c_str(), &named) != 0) {
        if (errno == ENOENT && !create) return UniqueFd();
        int const error = errno == ENOENT ? make_directory_with_parents(path) : errno;
        if (error != 0) return failure(what, error);
    } else if (S_ISLNK(named.st_mode)) {
        if (std::string const reason = wrong_owner(named); !reason.empty()) return unavailable(what + " is a link that " + reason);
    }
    UniqueFd directory = above_standard(::open(path.c_str(), kFolderFlags));
    if (!directory.valid()) return failure(what, errno);
    return directory;
}

// 0 if files and folders can be made in it, else errno.
int not_writable(int directory, char const* name) { return ::faccessat(directory, name, W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno; }

// 0 if the missing directory can be made, else errno.
int not_makeable(std::filesystem::path const& path) {
    std::filesystem::path above = path.parent_path();
    struct stat facts {};
    while (::lstat(above.c_str(), &facts) != 0 && errno == ENOENT && above.has_relative_path()) above = above.parent_path();
    return not_writable(AT_FDCWD, above.c_str());
}

OpenedRoot missing(OpenedRoot root, int error) {
    root.writable = error == 0;
    root.reason += fmt::format("{}cache directory {} does not exist", root.reason.empty() ? "" : "; ", root.path);
    if (error != 0) root.reason += ", and cannot be made: " + errno_text(error);
    return root;
}

// "" if files can be made in the directory.
std::string why_not_writable(UniqueFd const& directory, struct stat const& status) {
    if (status.st_uid != ::geteuid())
        return fmt::format("is owned by uid {}: its entries are read, none is written", status.st_uid);
    int const error = not_writable(directory.get(), ".");
    return error == 0 ? std::string() : "cannot be written: " + errno_text(error);
}

}  // namespace

std::string distrust(struct stat const& file) {
    if (std::string reason = wrong_owner(file); !reason.empty()) return reason;
    if ((file.st_mode & kWritableByOthers) != 0)
        return fmt::format("has mode {:04o}: nobody but its owner may write it", file.st_mode & 07777);
    return {};
}

Result<UniqueFd> open_folder_at(int directory, std::string const& name, bool create) {
    std::string const what = fmt::format("cache folder {}", name);
    if (create && ::mkdirat(directory, name.c_str(), S_IRWXU) != 0 && errno != EEXIST) return failure(what, errno);
    UniqueFd folder = above_standard(::openat(directory, name.c_str(), kFolderFlags | O_NOFOLLOW));
    if (!folder.valid()) {
        if (errno == ENOENT && !create) return folder;
        bool const something_else = errno == ENOTDIR || errno == ELOOP;
        return Status(something_else ? XQAJIT_CACHE_CORRUPT : XQAJIT_UNAVAILABLE, what + ": " + errno_text(errno));
    }
    struct stat status {};
    if (::fstat(folder.get(), &status) != 0) return failure(what, errno);
    if (std::string const reason = distrust(status); !reason.empty()) return Status(XQAJIT_CACHE_CORRUPT, what + " " + reason);
    return folder;
}

CacheFile read_cache_file(int folder, std::string const& name, std::uint64_t max_bytes) {
    using Outcome = CacheFile::Outcome;
    CacheFile file;
    auto const end = [&](Outcome outcome, std::string const& text) {
        file.outcome = outcome;
        file.status = {outcome == Outcome::kBad ? XQAJIT_CACHE_CORRUPT : XQAJIT_UNAVAILABLE, text};
        return std::move(file);
    };
    auto const unreadable = [&](std::string const& why) { return end(Outcome::kUnreadable, "cannot be read: " + why); };
    // O_NONBLOCK: a FIFO under the name must not hang.
    UniqueFd opened = above_standard(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
    int const error = opened.valid() ? 0 : errno;
    if (error == ENOENT) return end(Outcome::kMissing, "is missing");
    // What cannot be opened is judged by its name all the same: nothing of it is read.
    int const looked =
        opened.valid() ? ::fstat(opened.get(), &file.facts) : ::fstatat(folder, name.c_str(), &file.facts, AT_SYMLINK_NOFOLLOW);
    if (looked != 0) return errno == ENOENT ? end(Outcome::kMissing, "is missing") : unreadable(errno_text(errno));
    if (!S_ISREG(file.facts.st_mode)) return end(Outcome::kBad, "is not a regular file");
    if (std::string const reason = distrust(file.facts); !reason.empty()) return end(Outcome::kBad, reason);
    if (!opened.valid()) return unreadable(errno_text(error));
    auto const too_long = [&](std::uint64_t bytes) {
        return end(Outcome::kBad, fmt::format("has {} bytes: accepted are up to {}", bytes, max_bytes));
    };
    if (static_cast<std::uint64_t>(file.facts.st_size) > max_bytes) return too_long(static_cast<std::uint64_t>(file.facts.st_size));
    Result<std::string> bytes = read_open_file(std::move(opened), name, max_bytes);
    if (!bytes.ok() && bytes.status().code() == XQAJIT_INVALID_ARGUMENT) return too_long(max_bytes + 1);  // it grows
    if (!bytes.ok()) return unreadable(bytes.status().message());
    file.outcome = Outcome::kGood;
    file.bytes = std::move(*bytes);
    return file;
}

Result<OpenedRoot> open_root(std::string const& path, bool create) {
    if (path.empty()) return unavailable("cache directory is named by an empty text");
    std::error_code error;
    std::filesystem::path named = std::filesystem::absolute(path, error);
    if (error) return unavailable(fmt::format("cache directory {}: {}", path, error.message()));
    while (!named.has_filename() && named.has_relative_path()) named = named.parent_path();  // "dir/" would follow a link

    Result<UniqueFd> opened = open_named(named, create);
    if (!opened.ok()) return opened.status();
    OpenedRoot root{std::move(*opened), named.string(), false, {}};
    if (!root.directory.valid()) return missing(std::move(root), not_makeable(named));
    struct stat status {};
    if (::fstat(root.directory.get(), &status) != 0) return failure("cache directory " + root.path, errno);

    if ((status.st_mode & kWritableByOthers) != 0) {
        std::string const name = fmt::format("uid-{}", ::geteuid());
        root.reason = fmt::format("{} has mode {:04o}, so that others can write there: {} in it is used", root.path,
                                  status.st_mode & 07777, name);
        int const refused = not_writable(root.directory.get(), ".");
        Result<UniqueFd> own = open_folder_at(root.directory.get(), name, create);
        if (!own.ok()) return unavailable(fmt::format("{}: {}", root.reason, own.status().message()));
        root.directory = std::move(*own);
        root.path = (named / name).string();
        if (!root.directory.valid()) return missing(std::move(root), refused);
        if (::fstat(root.directory.get(), &status) != 0) return failure("cache directory " + root.path, errno);
    } else if (std::string const reason = distrust(status); !reason.empty()) {
        return unavailable(fmt::format("cache directory {} {}", root.path, reason));
    }
    std::string const read_only = why_not_writable(root.directory, status);
    root.writable = read_only.empty();
    if (!root.writable) root.reason = fmt::format("cache directory {} {}", root.path, read_only);
    return root;
}

Result<OpenedLayer> open_layer_path(std::string const& path) {
    auto const refused = [&](std::string const& why) { return unavailable(fmt::format("cache layer {} {}", path, why)); };
    if (!path.starts_with('/')) return refused("is relative: accepted is an absolute path");
    std::string plain = path;
    while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();  // "dir/" would follow a link
    struct stat facts {};
    if (::lstat(plain.c_str(), &facts) != 0) return refused("cannot be opened: " + errno_text(errno));
    if (S_ISLNK(facts.st_mode))
        if (std::string const reason = wrong_owner(facts); !reason.empty()) return refused("is a link that " + reason);
    OpenedLayer opened;
    opened.descriptor = above_standard(::open(plain.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!opened.descriptor.valid() || ::fstat(opened.descriptor.get(), &facts) != 0)
        return refused("cannot be opened: " + errno_text(errno));
    if (!S_ISDIR(facts.st_mode) && !S_ISREG(facts.st_mode)) return refused("is neither a directory nor a file");
    if (std::string const reason = distrust(facts); !reason.empty()) return refused(reason);
    opened.is_directory = S_ISDIR(facts.st_mode);
    return opened;
}

Result<std::vector<std::string>> names_in(int directory) {
    std::vector<std::string> names;
    // A second descriptor: closedir() closes the one it was given, and the position of a shared one would be shared.
    UniqueFd own = above_standard(::openat(directory, ".", kFolderFlags));
    if (!own.valid() && errno == ENOENT) return names;
    std::unique_ptr<DIR, int (*)(DIR*)> const stream(own.valid() ? ::fdopendir(own.get()) : nullptr, ::closedir);
    if (stream == nullptr) return failure("cache folder cannot be read", errno);
    own.release();
    errno = 0;
    while (dirent const* item = ::readdir(stream.get())) {
        std::string name = item->d_name;
        if (name != "." && name != "..") names.push_back(std::move(name));
        errno = 0;
    }
    if (errno != 0) return failure("cache folder cannot be read", errno);
    std::sort(names.begin(), names.end());
    return names;
}

}  // namespace xqajit::cache
