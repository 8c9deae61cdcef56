#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace xqajit {
namespace {

constexpr int kNameAttempts = 100;  // another host on a shared volume may have our process id

Status read_failure(std::string const& path, int error) {
    bool const missing = error == ENOENT || error == ENOTDIR;
    bool const refused = error == EACCES || error == EPERM || error == ELOOP || error == ENAMETOOLONG;
    xqajit_status const code = missing ? XQAJIT_UNAVAILABLE : refused ? XQAJIT_INVALID_ARGUMENT : XQAJIT_INTERNAL;
    return {code, "cannot read " + path + ": " + errno_text(error)};
}

Status write_failure(std::string const& name, char const* step, int error) {
    return unavailable("cannot write " + name + ": " + step + ": " + errno_text(error));
}

// The folder may be one that others write to: whoever knew the name could take it first, and stop the write.
std::string temporary_name() {
    static std::atomic<std::uint32_t> counter{0};
    std::uint64_t unknown = 0;
    (void)::getentropy(&unknown, sizeof unknown);
    char digits[17] = "";
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(unknown));
    return kTemporaryPrefix + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) +
           "-" + digits;
}

Status write_and_close(UniqueFd file, std::string const& name, std::string_view bytes, Sync sync) {
    if (!write_all(file.get(), bytes)) return write_failure(name, "write", errno);
    if (sync == Sync::kNow && ::fsync(file.get()) != 0) return write_failure(name, "fsync", errno);
    // A network file system may report a full disk at close only. Linux closes the descriptor even where close fails.
    if (::close(file.release()) != 0 && errno != EINTR) return write_failure(name, "close", errno);
    return {};
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = other.release();
    }
    return *this;
}

UniqueFd::~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
}

UniqueFd above_standard(int fd) {
    if (fd < 0 || fd > 2) return UniqueFd(fd);
    int const raised = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int const error = errno;
    ::close(fd);
    errno = error;
    return UniqueFd(raised);
}

bool write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        ssize_t const count = ::write(fd, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

std::string errno_text(int error) {
    char const* const text = ::strerrordesc_np(error);
    char const* const name = ::strerrorname_np(error);
    if (text == nullptr || name == nullptr) return "error " + std::to_string(error);
    return std::string(text) + " (" + name + ")";
}

Result<std::string> read_open_file(UniqueFd file, std::string const& path, std::uint64_t max_bytes) {
    struct stat info {};
    if (::fstat(file.get(), &info) != 0) return read_failure(path, errno);
    if (!S_ISREG(info.st_mode)) return invalid_argument("cannot read " + path + ": it is not a regular file");
    auto const too_large = [&](std::uint64_t size) {
        return invalid_argument(path + " has " + std::to_string(size) + " bytes: at most " + std::to_string(max_bytes) +
                                " are accepted");
    };
    auto const size = static_cast<std::uint64_t>(info.st_size);
    if (size > max_bytes) return too_large(size);

    std::string bytes(size, '\0');
    std::size_t filled = 0;
    while (true) {
        if (filled == bytes.size()) {  // the file may have grown since fstat
            char next = 0;
            ssize_t const count = ::read(file.get(), &next, 1);
            if (count == 0) break;
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return read_failure(path, errno);
            if (bytes.size() == max_bytes) return too_large(max_bytes + 1);
            bytes.push_back(next);
            ++filled;
            continue;
        }
        ssize_t const count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return read_failure(path, errno);
        if (count == 0) break;
        filled += static_cast<std::size_t>(count);
    }
    bytes.resize(filled);
    return bytes;
}

// O_NONBLOCK: opening a FIFO that somebody left under the name must not hang. It changes nothing for a regular file.
Result<std::string> read_file(std::string const& path, std::uint64_t max_bytes) {
    UniqueFd file = above_standard(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid()) return read_failure(path, errno);
    return read_open_file(std::move(file), path, max_bytes);
}

Result<std::string> read_file_at(int directory, std::string const& name, std::uint64_t max_bytes) {
    UniqueFd file = above_standard(::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (!file.valid()) return read_failure(name, errno);
    return read_open_file(std::move(file), name, max_bytes);
}

Result<std::string> write_temporary_at(int directory, std::string const& name, std::string_view bytes, Sync sync, mode_t mode) {
    std::string temporary;
    UniqueFd file;
    for (int attempt = 0; !file.valid(); ++attempt) {
        temporary = temporary_name();
        file = above_standard(::openat(directory, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
        if (!file.valid() && (errno != EEXIST || attempt == kNameAttempts)) return write_failure(name, "create", errno);
    }
    Status status = write_and_close(std::move(file), name, bytes, sync);
    if (status.ok()) return temporary;
    ::unlinkat(directory, temporary.c_str(), 0);
    return status;
}

Status rename_temporary_at(int directory, std::string const& temporary, std::string const& name) {
    if (::renameat(directory, temporary.c_str(), directory, name.c_str()) == 0) return {};
    Status status = write_failure(name, "rename", errno);
    ::unlinkat(directory, temporary.c_str(), 0);
    return status;
}

Status write_file_atomic_at(int directory, std::string const& name, std::string_view bytes, mode_t mode) {
    Result<std::string> const temporary = write_temporary_at(directory, name, bytes, Sync::kNow, mode);
    if (!temporary.ok()) return temporary.status();
    XQAJIT_RETURN_IF_ERROR(rename_temporary_at(directory, *temporary, name));
    // Makes the rename durable. The file is complete either way, and some file systems cannot sync a directory.
    ::fsync(directory);
    return {};
}

}  // namespace xqajit
