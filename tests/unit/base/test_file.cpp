#include "base/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "catch.h"

using namespace xqajit;
namespace fs = std::filesystem;

namespace {

class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "xqajit-file-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
        fd_ = UniqueFd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        REQUIRE(fd_.valid());
    }
    ~Folder() { fs::remove_all(path_); }
    int fd() const { return fd_.get(); }
    std::string path(std::string const& name) const { return (path_ / name).string(); }
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
    }
    void write(std::string const& name, std::string const& bytes) const { std::ofstream(path(name), std::ios::binary) << bytes; }

private:
    fs::path path_;
    UniqueFd fd_;
};

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what is written is read back, replaced files included", "[base][file]") {
    Folder const folder;
    for (std::string const& bytes :
         {std::string("first"), std::string(), std::string("zero\0inside", 11), std::string(1 << 20, 'x')}) {
        REQUIRE(write_file_atomic_at(folder.fd(), "entry", bytes).ok());
        auto const at = read_file_at(folder.fd(), "entry", 1 << 20);
        REQUIRE(at.ok());
        CHECK(*at == bytes);
        auto const by_path = read_file(folder.path("entry"), 1 << 20);
        REQUIRE(by_path.ok());
        CHECK(*by_path == bytes);
        CHECK(folder.files() == 1);
    }
}

TEST_CASE("a missing file is unavailable, and the error names it", "[base][file]") {
    Folder const folder;
    folder.write("file", "text");
    for (std::string const& name : {std::string("absent"), std::string("absent/deeper"), std::string("file/below")}) {
        CAPTURE(name);
        for (Status const& status : {read_file(folder.path(name), 10).status(), read_file_at(folder.fd(), name, 10).status()}) {
            CHECK(status.code() == XQAJIT_UNAVAILABLE);
            CHECK(contains(status.message(), name));
            CHECK((contains(status.message(), "(ENOENT)") || contains(status.message(), "(ENOTDIR)")));
        }
    }
}

TEST_CASE("a file larger than the bound is refused with both sizes", "[base][file]") {
    Folder const folder;
    folder.write("entry", std::string(11, 'x'));
    CHECK(read_file_at(folder.fd(), "entry", 11).ok());
    Status const status = read_file_at(folder.fd(), "entry", 10).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "11 bytes"));
    CHECK(contains(status.message(), "at most 10"));
}

TEST_CASE("what is no regular file is refused and does not hang", "[base][file]") {
    Folder const folder;
    fs::create_directory(folder.path("folder"));
    REQUIRE(::mkfifo(folder.path("fifo").c_str(), 0600) == 0);
    for (std::string const& path : {folder.path("folder"), folder.path("fifo"), std::string("/dev/zero")}) {
        CAPTURE(path);
        Status const status = read_file(path, 10).status();
        CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
        CHECK(contains(status.message(), "not a regular file"));
    }
}

TEST_CASE("a symbolic link in a trusted directory is not followed", "[base][file]") {
    Folder const folder;
    folder.write("target", "secret");
    fs::create_symlink(folder.path("target"), folder.path("link"));
    Status const status = read_file_at(folder.fd(), "link", 100).status();
    CHECK(status.code() == XQAJIT_INVALID_ARGUMENT);
    CHECK(contains(status.message(), "(ELOOP)"));

    // Writing replaces the link itself.
    REQUIRE(write_file_atomic_at(folder.fd(), "link", "new").ok());
    CHECK(*read_file(folder.path("target"), 100) == "secret");
    CHECK(*read_file_at(folder.fd(), "link", 100) == "new");
}

TEST_CASE("a write that fails leaves the old file and no temporary one", "[base][file]") {
    Folder const folder;
    REQUIRE(write_file_atomic_at(folder.fd(), "entry", "old").ok());
    fs::create_directory(folder.path("folder"));

    SECTION("no room") {
        // Stands for a full disk: the kernel refuses the bytes after some were written.
        struct rlimit old {};
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
        auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
        struct rlimit const small{1000, old.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
        Status const status = write_file_atomic_at(folder.fd(), "entry", std::string(5000, 'x'));
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
        std::signal(SIGXFSZ, handler);
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(status.message(), "entry"));
        CHECK(contains(status.message(), "(EFBIG)"));
    }
    SECTION("a directory is in the way") {
        Status const status = write_file_atomic_at(folder.fd(), "folder", "x");
        CHECK(status.code() == XQAJIT_UNAVAILABLE);
        CHECK(contains(status.message(), "rename"));
    }
    CHECK(*read_file_at(folder.fd(), "entry", 100) == "old");
    CHECK(folder.files() == 2);
}

TEST_CASE("writing into a directory that is gone is an error by name", "[base][file]") {
    Folder const folder;
    fs::create_directory(folder.path("gone"));
    UniqueFd const gone(::open(folder.path("gone").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    fs::remove(folder.path("gone"));
    Status const status = write_file_atomic_at(gone.get(), "entry", "x");
    CHECK(status.code() == XQAJIT_UNAVAILABLE);
    CHECK(contains(status.message(), "(ENOENT)"));
}

TEST_CASE("readers see a whole file while writers replace it", "[base][file]") {
    Folder const folder;
    auto const content = [](char c) { return std::string(50'000, c); };
    REQUIRE(write_file_atomic_at(folder.fd(), "entry", content('a')).ok());
    std::vector<std::thread> writers;
    for (char const c : {'b', 'c'})
        writers.emplace_back([&, c] {
            for (int i = 0; i < 20; ++i) (void)write_file_atomic_at(folder.fd(), "entry", content(c));
        });
    for (int i = 0; i < 200; ++i) {
        auto const bytes = read_file_at(folder.fd(), "entry", 1 << 20);
        REQUIRE(bytes.ok());
        REQUIRE(*bytes == content(bytes->front()));
    }
    for (std::thread& writer : writers) writer.join();
    CHECK(folder.files() == 1);
}

TEST_CASE("a file opened while standard streams are closed does not take their numbers", "[base][file]") {
    Folder const folder;
    int const saved = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    ::close(STDIN_FILENO);
    UniqueFd const raised = above_standard(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    bool const was_freed = ::fcntl(STDIN_FILENO, F_GETFD) == -1;
    Status const written = write_file_atomic_at(folder.fd(), "entry", "bytes");
    if (saved >= 0) {
        ::dup2(saved, STDIN_FILENO);
        ::close(saved);
    }
    CHECK(raised.get() >= 3);
    CHECK((::fcntl(raised.get(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(was_freed);
    CHECK(written.ok());
    CHECK_FALSE(above_standard(-1).valid());
}

TEST_CASE("an owned descriptor is closed once", "[base][file]") {
    UniqueFd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    int const number = first.get();
    UniqueFd second(std::move(first));
    CHECK_FALSE(first.valid());  // NOLINT: a moved-from descriptor is defined to be empty
    CHECK(second.get() == number);
    second = UniqueFd();
    CHECK(::fcntl(number, F_GETFD) == -1);
    CHECK(errno == EBADF);
}

TEST_CASE("errno is printed with its text and its name", "[base][file]") {
    CHECK(errno_text(ENOSPC) == "No space left on device (ENOSPC)");
    CHECK(errno_text(EACCES) == "Permission denied (EACCES)");
    CHECK(errno_text(987654) == "error 987654");
}
