#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/file.h"

namespace xqajit {
namespace {

using Clock = std::chrono::steady_clock;

// A descendant may hold the pipes open after the child has gone: the child is looked for at least this often.
constexpr std::chrono::milliseconds kReapInterval{50};
constexpr std::chrono::milliseconds kReapStep{2};  // while the child has closed its pipes but not ended

struct Channel {
    UniqueFd ours;
    UniqueFd childs;
};

// Above the standard descriptors, so that a host which closed those cannot make the child's dup2 calls collide.
Status raise(UniqueFd& fd) {
    if (fd.get() > 2) return {};
    UniqueFd raised(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
    if (!raised.valid()) return unavailable("cannot duplicate a descriptor: " + errno_text(errno));
    fd = std::move(raised);
    return {};
}

// The child's input is a socket, because a socket can be written without SIGPIPE: a child that dies early must not kill the host.
Status open_input(Channel& channel) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return unavailable("cannot make a socket pair: " + errno_text(errno));
    channel = {UniqueFd(fds[0]), UniqueFd(fds[1])};
    XQAJIT_RETURN_IF_ERROR(raise(channel.ours));
    return raise(channel.childs);
}

Status open_output(Channel& channel) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) return unavailable("cannot make a pipe: " + errno_text(errno));
    channel = {UniqueFd(fds[0]), UniqueFd(fds[1])};
    XQAJIT_RETURN_IF_ERROR(raise(channel.ours));
    XQAJIT_RETURN_IF_ERROR(raise(channel.childs));
    if (::fcntl(channel.ours.get(), F_SETFL, O_NONBLOCK) != 0) return unavailable("cannot set up a pipe: " + errno_text(errno));
    return {};
}

std::vector<char*> pointers(std::vector<std::string> const& strings) {
    std::vector<char*> result;
    for (std::string const& text : strings) result.push_back(const_cast<char*>(text.c_str()));  // posix_spawn does not write
    result.push_back(nullptr);
    return result;
}

struct SpawnSetup {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    SpawnSetup() {
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawnattr_init(&attributes);
    }
    SpawnSetup(SpawnSetup const&) = delete;
    SpawnSetup& operator=(SpawnSetup const&) = delete;
    ~SpawnSetup() {
        ::posix_spawnattr_destroy(&attributes);
        ::posix_spawn_file_actions_destroy(&actions);
    }
};

// The child starts with default signals, an empty mask, and no descriptor of the host's but the three standard ones.
int spawn(std::vector<std::string> const& argv, std::vector<std::string> const* environment, bool own_group,
          std::array<Channel, 3> const& channels, pid_t& child) {
    SpawnSetup setup;
    for (int target = 0; target < 3; ++target) {
        int const source = channels[static_cast<std::size_t>(target)].childs.get();
        if (int const error = ::posix_spawn_file_actions_adddup2(&setup.actions, source, target); error != 0) return error;
    }
    if (int const error = ::posix_spawn_file_actions_addclosefrom_np(&setup.actions, 3); error != 0) return error;
    sigset_t signals;
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&setup.attributes, &signals);
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&setup.attributes, &signals);
    ::posix_spawnattr_setpgroup(&setup.attributes, 0);
    int const flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (own_group ? POSIX_SPAWN_SETPGROUP : 0);
    ::posix_spawnattr_setflags(&setup.attributes, static_cast<short>(flags));

    std::vector<char*> const arguments = pointers(argv);
    std::vector<char*> const variables = environment ? pointers(*environment) : std::vector<char*>{};
    return ::posix_spawn(&child, argv[0].c_str(), &setup.actions, &setup.attributes, arguments.data(),
                         environment ? variables.data() : environ);
}

class Child {
public:
    Child(pid_t pid, ProcessResult& result) : pid_(pid), result_(result) {}

    bool gone() const { return gone_; }

    // Notes how the child ended if it has ended. Where the host ignores SIGCHLD the kernel reaps it and nobody can know.
    void reap() {
        int status = 0;
        pid_t const reaped = gone_ ? 0 : ::waitpid(pid_, &status, WNOHANG);
        if (reaped == pid_) {
            gone_ = true;
            result_.end = WIFSIGNALED(status) ? ProcessResult::End::kSignalled : ProcessResult::End::kExited;
            result_.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
        } else if (reaped < 0 && errno == ECHILD) {
            gone_ = true;
            result_.end = ProcessResult::End::kUnknown;
        }
    }

    // To be called after reap(): a process id that is gone may already belong to another process.
    void kill(ProcessResult::End reason) {
        if (gone_) return;
        ::kill(pid_, SIGKILL);
        while (!gone_) {
            reap();
            if (!gone_) std::this_thread::sleep_for(kReapStep);
        }
        result_.end = reason;
        result_.code = SIGKILL;
    }

private:
    pid_t pid_;
    ProcessResult& result_;
    bool gone_ = false;
};

// Reads what is there; closes the descriptor at the end of the stream.
void drain(UniqueFd& fd, std::string& text) {
    char buffer[65536];
    while (fd.valid()) {
        ssize_t const count = ::read(fd.get(), buffer, sizeof buffer);
        if (count > 0)
            text.append(buffer, static_cast<std::size_t>(count));
        else if (count < 0 && errno == EINTR)
            continue;
        else if (count < 0 && errno == EAGAIN)
            return;
        else
            fd = UniqueFd();
    }
}

// Sends what fits; closes the descriptor after the last byte, or once nobody reads.
void feed(UniqueFd& fd, std::string_view& input) {
    while (!input.empty()) {
        ssize_t const count = ::send(fd.get(), input.data(), input.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == ENOBUFS)) return;
        if (count < 0) break;
        input.remove_prefix(static_cast<std::size_t>(count));
    }
    fd = UniqueFd();
}

void converse(Child& child, std::array<Channel, 3>& channels, std::string_view input, Clock::time_point deadline, int const* stop,
              ProcessResult& result) {
    auto& [in, out, err] = channels;
    feed(in.ours, input);
    while (true) {
        child.reap();
        drain(out.ours, result.out);
        drain(err.ours, result.err);
        if (child.gone()) return;
        auto const left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        if (left.count() <= 0) return child.kill(ProcessResult::End::kTimedOut);
        if (is_set(stop)) return child.kill(ProcessResult::End::kStopped);
        if (!out.ours.valid() && !err.ours.valid()) {
            std::this_thread::sleep_for(std::min(left, kReapStep));
            continue;
        }
        std::array<pollfd, 3> polled{{{in.ours.get(), POLLOUT, 0}, {out.ours.get(), POLLIN, 0}, {err.ours.get(), POLLIN, 0}}};
        ::poll(polled.data(), polled.size(), static_cast<int>(std::min(left, kReapInterval).count()));
        if (in.ours.valid() && polled[0].revents != 0) feed(in.ours, input);
    }
}

}  // namespace

bool is_set(int const* stop) { return stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0; }

std::string ProcessResult::describe() const {
    auto const signal_name = [](int signal) {
        char const* const name = ::sigabbrev_np(signal);
        return (name ? "SIG" + std::string(name) : std::string("a signal")) + " (" + std::to_string(signal) + ")";
    };
    switch (end) {
        case End::kExited:
            return "exited with status " + std::to_string(code);
        case End::kSignalled:
            return "killed by " + signal_name(code);
        case End::kTimedOut:
            return "killed at its deadline";
        case End::kStopped:
            return "stopped";
        case End::kUnknown:
            break;
    }
    return "ended, status unknown (the host ignores SIGCHLD or reaped it)";
}

Result<ProcessResult> run_process(std::vector<std::string> const& argv, std::string const& input, std::chrono::milliseconds timeout,
                                  std::vector<std::string> const* environment, int const* stop) {
    if (argv.empty() || argv[0].empty() || argv[0][0] != '/')
        return invalid_argument("argv[0] is '" + (argv.empty() ? std::string() : argv[0]) + "': an absolute path is required");
    std::array<Channel, 3> channels;
    XQAJIT_RETURN_IF_ERROR(open_input(channels[0]));
    XQAJIT_RETURN_IF_ERROR(open_output(channels[1]));
    XQAJIT_RETURN_IF_ERROR(open_output(channels[2]));

    pid_t pid = -1;
    if (int const error = spawn(argv, environment, stop != nullptr, channels, pid); error != 0)
        return unavailable("cannot start " + argv[0] + ": " + errno_text(error));
    for (Channel& channel : channels) channel.childs = UniqueFd();

    ProcessResult result;
    Child child(pid, result);
    converse(child, channels, input, Clock::now() + timeout, stop, result);
    return result;
}

}  // namespace xqajit
