#include "base/subprocess.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "base/file.h"
#include "catch.h"

using namespace xqajit;
using namespace std::chrono_literals;
using End = ProcessResult::End;

namespace {

constexpr auto kLong = 60s;  // a deadline that must not matter

ProcessResult shell(std::string const& script, std::string const& input = {}, std::chrono::milliseconds timeout = kLong) {
    auto result = run_process({"/bin/sh", "-c", script}, input, timeout);
    REQUIRE(result.ok());
    return *result;
}

// Replaces a signal's action for as long as it lives.
class SignalAction {
public:
    SignalAction(int signal, void (*action)(int)) : signal_(signal), old_(std::signal(signal, action)) {}
    ~SignalAction() { std::signal(signal_, old_); }

private:
    int signal_;
    void (*old_)(int);
};

}  // namespace

TEST_CASE("output, errors and exit status come back apart", "[base][subprocess]") {
    ProcessResult const result = shell("echo out; echo err >&2; exit 3");
    CHECK(result.end == End::kExited);
    CHECK(result.code == 3);
    CHECK(result.out == "out\n");
    CHECK(result.err == "err\n");
    CHECK(result.describe() == "exited with status 3");
}

TEST_CASE("a child that may be stopped is, once it is asked for, and stands in a group of its own", "[base][subprocess]") {
    int stop = 0;
    auto const free = run_process({"/bin/sh", "-c", "echo $$; cut -d' ' -f5 /proc/self/stat"}, "", kLong, nullptr, &stop);
    REQUIRE(free.ok());
    CHECK(free->end == End::kExited);
    std::string const pid = free->out.substr(0, free->out.find('\n') + 1);
    CHECK(free->out == pid + pid);
    std::thread later([&] {
        std::this_thread::sleep_for(50ms);
        __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    });
    auto const stopped = run_process({"/bin/sh", "-c", "echo begun; exec sleep 100"}, "", kLong, nullptr, &stop);
    later.join();
    REQUIRE(stopped.ok());
    CHECK(stopped->end == End::kStopped);
    CHECK(stopped->describe() == "stopped");
}

TEST_CASE("large input and output pass at once", "[base][subprocess]") {
    std::string input;
    for (int i = 0; i < 300'000; ++i) input += std::to_string(i) + "\n";
    auto const result = run_process({"/bin/cat"}, input, kLong);
    REQUIRE(result.ok());
    CHECK(result->end == End::kExited);
    CHECK(result->out == input);
}

TEST_CASE("a child killed by a signal is described by the signal's name", "[base][subprocess]") {
    struct Row {
        char const* script;
        int signal;
        char const* text;
    };
    for (Row const row :
         {Row{"kill -SEGV $$", SIGSEGV, "killed by SIGSEGV (11)"}, Row{"kill -KILL $$", SIGKILL, "killed by SIGKILL (9)"},
          Row{"kill -ABRT $$", SIGABRT, "killed by SIGABRT (6)"}}) {
        ProcessResult const result = shell(row.script);
        CHECK(result.end == End::kSignalled);
        CHECK(result.code == row.signal);
        CHECK(result.describe() == row.text);
    }
}

TEST_CASE("a child is killed at its deadline and keeps what it had written", "[base][subprocess]") {
    SECTION("silent") { CHECK(shell("exec sleep 1000", "", 100ms).end == End::kTimedOut); }
    SECTION("deaf to polite signals") { CHECK(shell("trap '' TERM INT; while :; do :; done", "", 100ms).end == End::kTimedOut); }
    SECTION("after closing its pipes") { CHECK(shell("exec >&- 2>&- <&-; exec sleep 1000", "", 100ms).end == End::kTimedOut); }
    SECTION("writing without end") {
        ProcessResult const result = shell("echo begun; exec sleep 1000", "", 500ms);
        CHECK(result.end == End::kTimedOut);
        CHECK(result.out == "begun\n");
        CHECK(result.describe() == "killed at its deadline");
    }
}

TEST_CASE("a child that ends without reading its input does not kill the host", "[base][subprocess]") {
    SignalAction const fatal(SIGPIPE, SIG_DFL);
    std::string const input(8 << 20, 'x');
    ProcessResult const result = shell("exit 5", input);
    CHECK(result.end == End::kExited);
    CHECK(result.code == 5);
    ProcessResult const closed = shell("exec <&-; sleep 0.1; echo done", input);
    CHECK(closed.out == "done\n");
}

TEST_CASE("output arrives where the host ignores SIGCHLD", "[base][subprocess]") {
    SignalAction const ignored(SIGCHLD, SIG_IGN);
    ProcessResult const result = shell("cat; exit 4", "through");
    CHECK(result.end == End::kUnknown);
    CHECK(result.out == "through");
    CHECK(shell("exec sleep 1000", "", 100ms).end == End::kTimedOut);
}

TEST_CASE("the child has default signals whatever the host ignores or blocks", "[base][subprocess]") {
    SignalAction const pipe(SIGPIPE, SIG_IGN);
    SignalAction const child(SIGTERM, SIG_IGN);
    sigset_t blocked, old;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &blocked, &old);
    ProcessResult const result = shell("kill -TERM $$; sleep 1; echo survived");
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    CHECK(result.end == End::kSignalled);
    CHECK(result.code == SIGTERM);
}

TEST_CASE("the child inherits no descriptor but the standard three", "[base][subprocess]") {
    int const leaked = ::open("/dev/null", O_RDONLY);  // a host's, without close-on-exec
    REQUIRE(leaked > 2);
    CHECK(shell("if [ -e /proc/self/fd/" + std::to_string(leaked) + " ]; then echo open; else echo closed; fi").out == "closed\n");
    ::close(leaked);
}

TEST_CASE("a host without standard descriptors can run a child", "[base][subprocess]") {
    int saved[3];
    for (int fd = 0; fd < 3; ++fd) saved[fd] = ::fcntl(fd, F_DUPFD_CLOEXEC, 10);
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    auto const result = run_process({"/bin/sh", "-c", "cat; echo err >&2"}, "in", kLong);
    for (int fd = 0; fd < 3; ++fd)
        if (saved[fd] >= 0) {
            ::dup2(saved[fd], fd);
            ::close(saved[fd]);
        }
    REQUIRE(result.ok());
    CHECK(result->out == "in");
    CHECK(result->err == "err\n");
}

TEST_CASE("a descendant that holds the pipes open does not hold up the result", "[base][subprocess]") {
    ProcessResult const result = shell("sleep 30 & echo done");
    CHECK(result.end == End::kExited);
    CHECK(result.out == "done\n");
}

TEST_CASE("the environment is inherited or replaced", "[base][subprocess]") {
    ::setenv("XQAJIT_TEST_MARK", "inherited", 1);
    CHECK(shell("echo $XQAJIT_TEST_MARK").out == "inherited\n");
    std::vector<std::string> const environment{"XQAJIT_TEST_MARK=replaced"};
    auto const replaced = run_process({"/bin/sh", "-c", "echo $XQAJIT_TEST_MARK$HOME"}, "", kLong, &environment);
    ::unsetenv("XQAJIT_TEST_MARK");
    REQUIRE(replaced.ok());
    CHECK(replaced->out == "replaced\n");
}

TEST_CASE("arguments reach the child unchanged by any shell", "[base][subprocess]") {
    auto const result = run_process({"/usr/bin/printf", "%s|", "a b", "$HOME", "'", "", "*"}, "", kLong);
    REQUIRE(result.ok());
    CHECK(result->out == "a b|$HOME|'||*|");
}

TEST_CASE("a program that cannot be started is an error that names it", "[base][subprocess]") {
    auto const missing = run_process({"/nonexistent/worker"}, "", kLong);
    REQUIRE_FALSE(missing.ok());
    CHECK(missing.status().code() == XQAJIT_UNAVAILABLE);
    CHECK(missing.status().message() == "cannot start /nonexistent/worker: No such file or directory (ENOENT)");
    auto const no_program = run_process({"/etc/passwd"}, "", kLong);
    CHECK(no_program.status().code() == XQAJIT_UNAVAILABLE);
    for (std::vector<std::string> const& argv : {std::vector<std::string>{}, {""}, {"sh"}, {"./sh"}})
        CHECK(run_process(argv, "", kLong).status().code() == XQAJIT_INVALID_ARGUMENT);
}

TEST_CASE("threads run children of their own at once", "[base][subprocess]") {
    std::vector<std::string> outputs(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < outputs.size(); ++i)
        threads.emplace_back([&outputs, i] {
            auto const result = run_process({"/bin/cat"}, std::string(100'000, static_cast<char>('a' + i)), kLong);
            if (result.ok()) outputs[i] = result->out;
        });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < outputs.size(); ++i) CHECK(outputs[i] == std::string(100'000, static_cast<char>('a' + i)));
}
