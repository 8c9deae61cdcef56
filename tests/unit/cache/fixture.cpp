#include "unit/cache/fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>

#include "base/log.h"

namespace xqajit::cache::test {
namespace {

constexpr uid_t kStranger = 65533;  // has no passwd entry, as the users that containers are given

std::mutex warnings_mutex;
std::vector<std::string> warnings;

void keep_warning(void*, int level, char const* text) {
    if (level < static_cast<int>(log::Level::kWarning)) return;
    std::lock_guard const lock(warnings_mutex);
    warnings.emplace_back(text);
}

void require(bool done, std::string const& what) {
    if (!done) throw std::runtime_error(what);
}

}  // namespace

TempDirectory::TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "xqajit-cache-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr && ::chmod(name.c_str(), 0755) == 0, "no temporary directory");
    path_ = name;
}

TempDirectory::~TempDirectory() {
    std::error_code ignored;
    for (auto const& item : std::filesystem::recursive_directory_iterator(path_, ignored))
        if (item.is_directory(ignored) && !item.is_symlink(ignored)) ::chmod(item.path().c_str(), 0700);
    std::filesystem::remove_all(path_, ignored);
}

std::string TempDirectory::path(std::string const& below) const {
    return below.empty() ? path_.string() : (path_ / below).string();
}

Warnings::Warnings() {
    warnings.clear();
    log::set_sink(keep_warning, nullptr);
}

Warnings::~Warnings() { log::set_sink(nullptr, nullptr); }

std::vector<std::string> Warnings::texts() const {
    std::lock_guard const lock(warnings_mutex);
    return warnings;
}

CacheKey sample_key(int number, int compiler) {
    return {digest_of("body " + std::to_string(number)), digest_of("compiler " + std::to_string(compiler))};
}

Entry sample_entry(int number, std::size_t image_bytes, int compiler) {
    Entry entry{sample_key(number, compiler), "{\"number\": " + std::to_string(number) + "}", number % 2 == 1, {}};
    std::uint32_t state = static_cast<std::uint32_t>(number) * 2654435761u + 12345u;
    for (std::size_t i = 0; i < image_bytes; ++i) {
        state = state * 1664525u + 1013904223u;
        entry.image.push_back(static_cast<char>(state >> 24));
    }
    return entry;
}

bool same(Entry const& left, Entry const& right) {
    return left.key == right.key && left.metadata == right.metadata && left.is_ptx == right.is_ptx && left.image == right.image;
}

std::shared_ptr<DiskStore> open_store(std::string const& path) { return DiskStore::open({path, "argument"}); }

std::string file_of(DiskStore const& store, CacheKey const& key) {
    std::string const body = key.body.hex();
    return store.state().effective_path + "/" + body.substr(0, 2) + "/" + body + "/" + key.compiler.hex() + ".xqa";
}

void write_raw(std::string const& path, std::string const& bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
    file.close();
    require(file.good(), "cannot write " + path);
}

std::string read_raw(std::string const& path) {
    std::ifstream file(path, std::ios::binary);
    require(file.good(), "cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void make_old(std::string const& path, long seconds) {
    timespec const time{std::time(nullptr) - seconds, 0};
    timespec const times[2] = {time, time};
    require(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT,
            "cannot set the time of " + path);
}

unsigned mode_of(std::string const& path) {
    struct stat status {};
    require(::lstat(path.c_str(), &status) == 0, "no " + path);
    return status.st_mode & 07777;
}

pid_t start_child(std::function<int()> const& body) {
    pid_t const child = ::fork();
    require(child >= 0, "cannot fork");
    if (child != 0) return child;
    int code = 99;
    try {
        code = body();
    } catch (...) {
    }
    ::_exit(code);
}

int wait_child(pid_t child) {
    int status = 0;
    require(::waitpid(child, &status, 0) == child, "cannot wait for a child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int in_child(std::function<int()> const& body) { return wait_child(start_child(body)); }

void give_to_ordinary_user(std::string const& path) {
    if (::geteuid() == 0) require(::lchown(path.c_str(), kStranger, kStranger) == 0, "cannot give away " + path);
}

int as_ordinary_user(std::function<int()> const& body) {
    return in_child([&] {
        if (::geteuid() == 0) {
            require(::setresgid(kStranger, kStranger, kStranger) == 0, "setresgid");
            require(::setresuid(kStranger, kStranger, kStranger) == 0, "setresuid");
        }
        return body();
    });
}

}  // namespace xqajit::cache::test
