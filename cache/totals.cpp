#include "cache/totals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <thread>

#include "base/file.h"
#include "cache/directory.h"

namespace xqajit::cache {
namespace {

constexpr std::uint64_t kMaxTotalsBytes = 1u << 20;
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::milliseconds kLockStep{5};
constexpr char kTemporary[] = ".tmp-totals";  // one is enough: who writes it holds the lock

Status failed(char const* step) { return unavailable(fmt::format("{}: {}: {}", kTotals, step, errno_text(errno))); }

// A descriptor of its own: a lock belongs to the opening, and two services of one process exclude each other too.
Result<UniqueFd> lock_directory(int directory) {
    UniqueFd opened = above_standard(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened.valid()) return failed("open");
    auto const deadline = std::chrono::steady_clock::now() + kPatience;
    while (::flock(opened.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EINTR && (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= deadline)) return failed("lock");
        std::this_thread::sleep_for(kLockStep);
    }
    return opened;
}

Status replace(int directory, std::string const& text) {
    UniqueFd const file =
        above_standard(::openat(directory, kTemporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return failed("create");
    if (!write_all(file.get(), text) || ::renameat(directory, kTemporary, directory, kTotals) != 0) {
        Status status = failed("write");
        ::unlinkat(directory, kTemporary, 0);
        return status;
    }
    return {};
}

}  // namespace

// The directory is ours alone, so that what fstatat() saw is what read_file_at() opens.
Result<std::string> read_totals(int directory) {
    struct stat file {};
    if (::fstatat(directory, kTotals, &file, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) return std::string();
        return Status(XQAJIT_INTERNAL, fmt::format("{}: {}", kTotals, errno_text(errno)));
    }
    auto const corrupt = [](std::string const& why) { return Status(XQAJIT_CACHE_CORRUPT, fmt::format("{} {}", kTotals, why)); };
    if (!S_ISREG(file.st_mode)) return corrupt("is no regular file");
    if (std::string const why = distrust(file); !why.empty()) return corrupt(why);
    Result<std::string> text = read_file_at(directory, kTotals, kMaxTotalsBytes);
    if (text.ok() || text.status().code() == XQAJIT_INTERNAL) return text;
    if (text.status().code() == XQAJIT_UNAVAILABLE) return std::string();  // gone since
    return corrupt("cannot be taken: " + text.status().message());
}

Status update_totals(int directory, ChangeTotals const& change) {
    Result<UniqueFd> const locked = lock_directory(directory);
    if (!locked.ok()) return locked.status();
    Result<std::string> const before = read_totals(directory);
    if (!before.ok() && before.status().code() != XQAJIT_CACHE_CORRUPT) return before.status();
    return replace(directory, change(before));
}

}  // namespace xqajit::cache
