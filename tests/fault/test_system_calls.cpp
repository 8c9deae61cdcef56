// The system calls of the cache, each made to fail in each way that local and network file systems know, below a whole service: what was
// compiled is launched all the same, one warning tells, and nothing half done is left. The functions here take the places of libc's.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <filesystem>

#include "unit/cache/fixture.h"
#include "world.h"

namespace {

// Calls of one name on paths that contain a text; the first `spared` of them pass.
struct Fault {
    char const* call;
    char const* path;
    int error;
    int spared = 0;
};
std::atomic<Fault const*> active{nullptr};
std::atomic<int> met{0};   // calls that the active fault speaks of
constexpr int kHalf = -1;  // as an error: a write writes half of what it was given, and a full disk stops the rest

std::string path_of(int fd, char const* name = nullptr) {
    char path[4096] = "";
    std::string const link = "/proc/self/fd/" + std::to_string(fd);
    long const length = ::syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), path, sizeof path - 1);
    std::string const folder(path, length > 0 ? static_cast<std::size_t>(length) : 0);
    return name == nullptr ? folder : name[0] == '/' ? name : folder + "/" + name;
}

// 0: the call is to go on.
int fault_of(char const* call, std::string const& path) {
    Fault const* const fault = active;
    if (fault == nullptr || std::strcmp(fault->call, call) != 0 || path.find(fault->path) == std::string::npos) return 0;
    return met++ < fault->spared ? 0 : fault->error;
}

int fail(int error) {
    errno = error;
    return -1;
}

}  // namespace

extern "C" {

int flock(int fd, int operation) noexcept {
    if (int const error = operation == LOCK_UN ? 0 : fault_of("flock", path_of(fd))) return fail(error);
    return static_cast<int>(::syscall(SYS_flock, fd, operation));
}
int openat(int folder, char const* name, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t const mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (int const error = fault_of((flags & O_CREAT) != 0 ? "create" : "open", path_of(folder, name))) return fail(error);
    return static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
}
int mkdirat(int folder, char const* name, mode_t mode) noexcept {
    if (int const error = fault_of("mkdir", path_of(folder, name))) return fail(error);
    return static_cast<int>(::syscall(SYS_mkdirat, folder, name, mode));
}
ssize_t write(int fd, void const* bytes, std::size_t count) {
    int const error = fault_of("write", active.load() == nullptr ? std::string() : path_of(fd));
    if (error == kHalf && met == 1 && count > 1) return ::syscall(SYS_write, fd, bytes, count / 2);
    if (error != 0) return fail(error == kHalf ? ENOSPC : error);
    return ::syscall(SYS_write, fd, bytes, count);
}
ssize_t read(int fd, void* bytes, std::size_t count) {
    if (int const error = active.load() == nullptr ? 0 : fault_of("read", path_of(fd))) return fail(error);
    return ::syscall(SYS_read, fd, bytes, count);
}
int fsync(int fd) {
    if (int const error = fault_of("fsync", path_of(fd))) return fail(error);
    return static_cast<int>(::syscall(SYS_fsync, fd));
}
int close(int fd) {
    int const error = active.load() == nullptr ? 0 : fault_of("close", path_of(fd));
    int const result = static_cast<int>(::syscall(SYS_close, fd));
    return error != 0 ? fail(error) : result;  // Linux closes it in any case
}
int renameat(int from, char const* old_name, int to, char const* new_name) noexcept {
    if (int const error = fault_of("rename", path_of(to, new_name))) return fail(error);
    return static_cast<int>(::syscall(SYS_renameat2, from, old_name, to, new_name, 0));
}
int unlinkat(int folder, char const* name, int flags) noexcept {
    if (int const error = fault_of("unlink", path_of(folder, name))) return fail(error);
    return static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
}

}  // extern "C"

namespace xqajit {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class Injected {
public:
    explicit Injected(Fault const& fault) {
        met = 0;
        active = &fault;
    }
    ~Injected() { active = nullptr; }
    Injected(Injected const&) = delete;
};

constexpr char kTemporary[] = "/.tmp-";
constexpr char kEntry[] = ".xqa";
constexpr char kLock[] = ".lock";

// All that was logged but a line a compile or a hit.
std::size_t warnings(World const& world) {
    return world.logged("").size() - world.logged("compiled in").size() - world.logged("disk hit").size();
}

std::size_t files_like(World const& world, std::string const& part) {
    std::size_t count = 0;
    for (auto const& file : fs::recursive_directory_iterator(world.cache_dir()))
        count += file.is_regular_file() && contains(file.path().string(), part);
    return count;
}

// Prepares two shapes and launches them, whatever fails.
xqajit_stats prepare_and_launch(World const& world, Fault const& fault) {
    auto const service = world.service();
    Injected const injected(fault);
    for (std::uint32_t const head_dim : {64u, 128u}) {
        XQAParams params = plain_params();
        params.head_dim = head_dim;
        require_ok(service->prepare(params));
        Launch launch(params, 1, 1);
        launch.add_workspace(*service);
        require_ok(service->run(params, launch.args, nullptr));
    }
    return service->stats();
}

}  // namespace

TEST_CASE("a write that fails at any step costs the entry and one warning, and leaves nothing", "[service][fault][J03]") {
    for (Fault const& fault : {Fault{"create", kTemporary, ENOSPC},
                               {"create", kTemporary, EDQUOT},
                               {"create", kTemporary, ESTALE},
                               {"create", kTemporary, EROFS},
                               {"create", kTemporary, EIO},
                               {"write", kTemporary, ENOSPC},
                               {"write", kTemporary, EDQUOT},
                               {"write", kTemporary, EIO},
                               {"write", kTemporary, ESTALE},
                               {"write", kTemporary, kHalf},
                               {"fsync", kTemporary, EIO},
                               {"fsync", kTemporary, ENOSPC},
                               {"fsync", kTemporary, EDQUOT},
                               {"fsync", kTemporary, ESTALE},
                               {"close", kTemporary, EIO},
                               {"close", kTemporary, EDQUOT},
                               {"rename", kEntry, ENOSPC},
                               {"rename", kEntry, EDQUOT},
                               {"rename", kEntry, EIO},
                               {"rename", kEntry, ESTALE},
                               {"rename", kEntry, EBUSY},
                               {"rename", kEntry, ENOENT} /* the loser of two, that does not see the winner's */}) {
        INFO(fault.call << " " << fault.path << ": " << fault.error);
        World world;
        world.enter(0);
        xqajit_stats stats = prepare_and_launch(world, fault);
        CHECK(met >= 2);
        CHECK(stats.compiles == 2);
        CHECK(stats.launches == 2);
        CHECK(warnings(world) == 1);
        CHECK(world.logged("not kept on disk").size() == 1);
        CHECK(world.cache_files().empty());
        CHECK(files_like(world, kTemporary) == 0);
        CHECK(files_like(world, kLock) == 0);
        require_ok(must(world.service()->cache_verify()).status);
        require_ok(world.service()->prepare(plain_params()));  // the file system is well again
        CHECK(world.cache_files().size() == 1);
    }
}

TEST_CASE("what cannot be cleaned up is left, never read, and no more is said of it", "[service][fault][J03]") {
    for (Fault const& fault : {Fault{"unlink", kLock, EBUSY}, {"unlink", kLock, ESTALE}, {"unlink", kLock, ENOENT}}) {
        INFO(fault.error);
        World world;
        world.enter(0);
        xqajit_stats stats = prepare_and_launch(world, fault);
        CHECK(met == 2);
        CHECK(warnings(world) == 0);
        CHECK(world.cache_files().size() == 2);
        CHECK(files_like(world, kLock) == 2);
        stats = prepare_and_launch(world, {"flock", kLock, ENOLCK});  // which is not asked any more
        CHECK(stats.disk_hits == 2);
        CHECK(warnings(world) == 0);
    }
    // A temporary file that a network file system renames instead of removing it.
    World world;
    world.enter(0);
    auto const service = world.service();
    require_ok(service->prepare(plain_params()));
    std::string const left = fs::path(world.cache_files().front()).parent_path() / ".tmp-1-0";
    cache::test::write_raw(left, "half");
    cache::test::make_old(left, 1'000'000);
    fs::remove(world.cache_files().front());
    Fault const fault{"unlink", kTemporary, EBUSY};
    {
        Injected const injected(fault);
        require_ok(world.service()->prepare(plain_params()));
    }
    CHECK(met == 1);
    CHECK(warnings(world) == 0);
    CHECK(world.cache_files().size() == 1);
    require_ok(must(world.service()->cache_verify()).status);
}

TEST_CASE("where locks fail each process compiles and keeps its kernel, with one warning", "[service][fault][J22]") {
    for (Fault const& fault : {Fault{"flock", kLock, ENOLCK},
                               {"flock", kLock, ESTALE},
                               {"flock", kLock, EIO},
                               {"flock", kLock, EOPNOTSUPP},
                               {"flock", kLock, ENOSYS}}) {
        INFO(fault.error);
        World world;
        world.enter(0);
        xqajit_stats stats = prepare_and_launch(world, fault);
        CHECK(met == 2);
        CHECK(stats.compiles == 2);
        CHECK(warnings(world) == 1);
        CHECK(world.logged("may each compile").size() == 1);
        CHECK(world.cache_files().size() == 2);
        CHECK(world.service()->stats().lock_waits == 0);
    }
    for (Fault const& fault : {Fault{"create", kLock, ENOSPC},
                               {"create", kLock, EDQUOT},
                               {"create", kLock, ESTALE},
                               {"mkdir", "/locks", ENOSPC},
                               {"mkdir", "/locks", EDQUOT}}) {
        INFO(fault.call << " " << fault.error);
        World world;
        world.enter(0);
        xqajit_stats stats = prepare_and_launch(world, fault);
        CHECK(met == 2);
        CHECK(stats.compiles == 2);
        CHECK(warnings(world) <= 1);
        CHECK(world.cache_files().size() == 2);  // what has no room for a lock may have room for an entry
    }
}

TEST_CASE("an entry that cannot be read is compiled, with one warning, and stays", "[service][fault][J03]") {
    for (Fault const& fault : {Fault{"open", kEntry, ESTALE},
                               {"open", kEntry, EIO},
                               {"open", kEntry, EACCES},
                               {"read", kEntry, EIO},
                               {"read", kEntry, ESTALE},
                               {"read", kEntry, EIO, 1}}) {
        INFO(fault.call << " " << fault.error << " after " << fault.spared);
        World world;
        world.enter(0);
        xqajit_stats stats = prepare_and_launch(world, {"nothing", "", 0});
        REQUIRE(stats.compiles == 2);
        stats = prepare_and_launch(world, fault);
        CHECK(stats.compiles == 2);
        CHECK(stats.disk_hits == 0);
        CHECK(stats.quarantined == 0);  // nothing says that it is bad
        CHECK(warnings(world) == 1);
        CHECK(world.cache_files().size() == 2);
        CHECK(files_like(world, kTemporary) == 0);
        stats = prepare_and_launch(world, {"nothing", "", 0});
        CHECK(stats.disk_hits == 2);
    }
}

TEST_CASE("a directory of which every call fails costs two warnings at most: of the lock and of the entry",
          "[service][fault][J03]") {
    for (char const* const call : {"create", "open", "flock", "mkdir", "write", "fsync", "rename", "unlink", "close", "read"})
        for (int const error : {EIO, ESTALE, ENOSPC, EACCES}) {
            INFO(call << " " << error);
            World world;
            world.enter(0);
            xqajit_stats stats = XQAJIT_STATS_INIT;
            std::string const everywhere = world.cache_dir();
            Fault const fault{call, everywhere.c_str(), error};
            stats = prepare_and_launch(world, fault);
            CHECK(stats.launches == 2);
            CHECK(warnings(world) <= 2);
            auto const after = world.service();
            require_ok(after->prepare(plain_params()));
            require_ok(must(after->cache_verify()).status);
        }
}

}  // namespace xqajit
