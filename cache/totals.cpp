#include "cache/totals.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
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
    auto const create = [&] {
        return above_standard(::openat(directory, kTemporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    };
    UniqueFd file = create();
    // A killed writer's, or whatever else: nothing that stands there is opened.
    if (!file.valid() && errno == EEXIST && ::unlinkat(directory, kTemporary, 0) == 0) file = create();
    if (!file.valid()) return failed("create");
    if (!write_all(file.get(), text) || ::renameat(directory, kTemporary, directory, kTotals) != 0) {
        Status status = failed("write");
        ::unlinkat(directory, kTemporary, 0);
        return status;
    }
    return {};
}

}  // namespace

Result<std::string> read_totals(int directory) {
    using Outcome = CacheFile::Outcome;
    CacheFile file = read_cache_file(directory, kTotals, kMaxTotalsBytes);
    std::string const text = fmt::format("{} {}", kTotals, file.status.message());
    if (file.outcome == Outcome::kBad) return Status(XQAJIT_CACHE_CORRUPT, text);
    if (file.outcome == Outcome::kUnreadable) return Status(XQAJIT_INTERNAL, text);
    return std::move(file.bytes);  // "" of one that is missing
}

Status update_totals(int directory, ChangeTotals const& change) {
    Result<UniqueFd> const locked = lock_directory(directory);
    if (!locked.ok()) return locked.status();
    Result<std::string> const before = read_totals(directory);
    if (!before.ok() && before.status().code() != XQAJIT_CACHE_CORRUPT) return before.status();
    return replace(directory, change(before));
}

}  // namespace xqajit::cache
