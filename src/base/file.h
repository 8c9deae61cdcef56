// Files and directories with the checks that a trusted cache needs.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace xqajit {

class UniqueFd {
public:
    explicit UniqueFd(int fd = -1) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept;
    ~UniqueFd();
    int get() const { return fd_; }
    bool valid() const { return fd_ >= 0; }
    int release() {
        int const fd = fd_;
        fd_ = -1;
        return fd;
    }

private:
    int fd_;
};

// Owns fd, under a number of 3 or more: a host may have closed its standard streams, and what it prints must not end up in our file.
// Not valid if fd is not, or if it cannot be duplicated; errno says why.
UniqueFd above_standard(int fd);

// Errors name the path and errno's text. UNAVAILABLE: there is no such file. INVALID_ARGUMENT: it may not be read, is no regular
// file, or has more than max_bytes, which bounds what a damaged or hostile file can make us allocate. INTERNAL: reading failed.
Result<std::string> read_file(std::string const& path, std::uint64_t max_bytes);
Result<std::string> read_file_at(int directory, std::string const& name, std::uint64_t max_bytes);  // O_NOFOLLOW
// Of a file that the caller has opened, and perhaps judged; path: its name in errors.
Result<std::string> read_open_file(UniqueFd file, std::string const& path, std::uint64_t max_bytes);

// Temporary file in the same directory, written, fsynced, renamed over `name`, the directory fsynced. Leaves no temporary
// file behind on failure (a killed process does: its name starts with kTemporaryPrefix). UNAVAILABLE names the step and errno's text.
inline constexpr char kTemporaryPrefix[] = ".tmp-";
Status write_file_atomic_at(int directory, std::string const& name, std::string_view bytes, mode_t mode = 0600);
// The same in two steps, for several files at once; kLater: the caller syncs the file system between them. The first gives the temporary
// file's name; where the second fails the file is removed.
enum class Sync { kNow, kLater };
Result<std::string> write_temporary_at(int directory, std::string const& name, std::string_view bytes, Sync sync,
                                       mode_t mode = 0600);
Status rename_temporary_at(int directory, std::string const& temporary, std::string const& name);

// The whole of bytes, past interrupts and short writes. False, and errno says why.
bool write_all(int fd, std::string_view bytes);

std::string errno_text(int error);  // "No space left on device (ENOSPC)"

}  // namespace xqajit
