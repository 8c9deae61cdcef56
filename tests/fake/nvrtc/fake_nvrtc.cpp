// A stand-in for NVRTC, for tests that need no compiler or need a bad one: build/tests/fake/nvrtc/libnvrtc.so.13.
// Name it with XQAJIT_NVRTC_PATH. Its image is text that lists options and sources, the same for the same input.
// Environment, read at each call:
//   FAKE_NVRTC_VERSION=13.0      what nvrtcVersion answers
//   FAKE_NVRTC_ARCHS=75,80,90    what nvrtcGetSupportedArchs answers
//   FAKE_NVRTC_ONLY=TEXT         the settings below apply only to compiles with TEXT among their options ("-DXQAJIT_HEAD_DIM=64") or in
//                                the names and texts of their sources ("gmma/")
//   FAKE_NVRTC_ONCE=FILE         ... and only to the one compile that makes FILE
//   FAKE_NVRTC_FAIL=LOG          the compile fails with this log
//   FAKE_NVRTC_CRASH=1           the compile raises SIGSEGV
//   FAKE_NVRTC_HANG=1            the compile never ends
//   FAKE_NVRTC_DELAY_MS=N        the compile takes N ms longer
//   FAKE_NVRTC_WHILE=FILE        the compile does not end while FILE is there
//   FAKE_NVRTC_MEMORY=HOW        error: NVRTC_ERROR_OUT_OF_MEMORY; throw: std::bad_alloc; abort: as an uncaught one; kill: SIGKILL
//   FAKE_NVRTC_CHATTER=1         the compile writes to standard output
//   FAKE_NVRTC_COUNT=FILE        appends one line a compile, "<target> <process id>"
#include <fcntl.h>
#include <nvrtc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

struct _nvrtcProgram {
    std::string text;  // of the entry file and the headers, each after its name
    std::string log;
    std::string image;
    bool ptx = false;
};

namespace {

std::string setting(char const* name, char const* otherwise = "") {
    char const* const value = std::getenv(name);
    return value ? value : otherwise;
}

std::vector<int> archs() {
    std::vector<int> numbers;
    std::string const text = setting("FAKE_NVRTC_ARCHS", "75,80,86,87,88,89,90,100,103,110,120,121");
    for (char const* at = text.c_str(); *at != '\0'; at += *at == ',') {
        char* end = nullptr;
        numbers.push_back(static_cast<int>(std::strtol(at, &end, 10)));
        if (end == at) break;
        at = end;
    }
    return numbers;
}

void count_compile(std::string const& target) {
    std::string const file = setting("FAKE_NVRTC_COUNT");
    if (file.empty()) return;
    std::string const line = target + " " + std::to_string(getpid()) + "\n";
    int const fd = open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
    close(fd);
}

// Plain FNV-1a: the fake depends on nothing of the library it tests.
std::string hash_text(std::string_view text) {
    unsigned long long hash = 14695981039346656037ull;
    for (unsigned char const byte : text) hash = (hash ^ byte) * 1099511628211ull;
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", hash);
    return digits;
}

nvrtcResult copy_out(std::string const& text, char* out) {
    std::memcpy(out, text.c_str(), text.size() + 1);
    return NVRTC_SUCCESS;
}

// What the environment asks of this compile; NVRTC_SUCCESS: nothing bad.
nvrtcResult misbehave(nvrtcProgram program, std::string const& options) {
    std::string const only = setting("FAKE_NVRTC_ONLY");
    if (options.find(only) == std::string::npos && program->text.find(only) == std::string::npos) return NVRTC_SUCCESS;
    if (std::string const once = setting("FAKE_NVRTC_ONCE"); !once.empty()) {
        int const fd = open(once.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) return NVRTC_SUCCESS;
        close(fd);
    }
    if (int const delay = std::atoi(setting("FAKE_NVRTC_DELAY_MS", "0").c_str())) usleep(static_cast<useconds_t>(delay) * 1000);
    std::string const gate = setting("FAKE_NVRTC_WHILE");
    while (!gate.empty() && access(gate.c_str(), F_OK) == 0) usleep(1000);
    if (!setting("FAKE_NVRTC_CHATTER").empty()) {
        std::printf("chatter of the compiler\n");
        std::fflush(stdout);
    }
    if (!setting("FAKE_NVRTC_CRASH").empty()) {
        signal(SIGSEGV, SIG_DFL);  // past a sanitizer's handler
        raise(SIGSEGV);
    }
    while (!setting("FAKE_NVRTC_HANG").empty()) pause();
    std::string const memory = setting("FAKE_NVRTC_MEMORY");
    if (memory == "error") return NVRTC_ERROR_OUT_OF_MEMORY;
    if (memory == "throw") throw std::bad_alloc();
    if (memory == "kill") raise(SIGKILL);
    if (memory == "abort") {
        std::fprintf(stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n");
        std::abort();
    }
    program->log = setting("FAKE_NVRTC_FAIL");
    return program->log.empty() ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

}  // namespace

extern "C" {

nvrtcResult nvrtcVersion(int* major, int* minor) {
    return std::sscanf(setting("FAKE_NVRTC_VERSION", "13.0").c_str(), "%d.%d", major, minor) == 2 ? NVRTC_SUCCESS
                                                                                                  : NVRTC_ERROR_INVALID_INPUT;
}

nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
    *count = static_cast<int>(archs().size());
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int* out) {
    for (int const arch : archs()) *out++ = arch;
    return NVRTC_SUCCESS;
}

char const* nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
        case NVRTC_SUCCESS:
            return "NVRTC_SUCCESS";
        case NVRTC_ERROR_OUT_OF_MEMORY:
            return "NVRTC_ERROR_OUT_OF_MEMORY";
        case NVRTC_ERROR_INVALID_INPUT:
            return "NVRTC_ERROR_INVALID_INPUT";
        case NVRTC_ERROR_COMPILATION:
            return "NVRTC_ERROR_COMPILATION";
        default:
            return "NVRTC_ERROR unknown";
    }
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, char const* source, char const* name, int count, char const* const* headers,
                               char const* const* names) {
    *program = new _nvrtcProgram;
    (*program)->text = std::string(name) + "\n" + source;
    for (int i = 0; i < count; ++i) (*program)->text += std::string("\n") + names[i] + "\n" + headers[i];
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
    delete *program;
    *program = nullptr;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, char const* const* options) {
    std::string all, target;
    for (int i = 0; i < count; ++i) {
        std::string const option = options[i];
        all += option + "\n";
        if (option.starts_with("--gpu-architecture=")) target = option.substr(option.find('=') + 1);
    }
    count_compile(target);
    if (nvrtcResult const result = misbehave(program, all); result != NVRTC_SUCCESS) return result;
    program->ptx = target.starts_with("compute_");
    program->image = (program->ptx ? "// fake PTX\n" : "fake cubin\n") + all + hash_text(program->text) + "\n";
    if (!program->ptx)
        program->log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'xqajit_kernel' for '" + target +
                       "'\nptxas info    : Function properties for xqajit_kernel\n"
                       "ptxas         .     16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                       "ptxas info    : Used 40 registers, 16 bytes cumulative stack size, 128 bytes smem\n";
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
    *size = program->log.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) { return copy_out(program->log, log); }

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
    *size = program->ptx ? 0 : program->image.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* image) { return copy_out(program->image, image); }

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, std::size_t* size) {
    *size = program->image.size() + 1;
    return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* image) { return copy_out(program->image, image); }

}  // extern "C"
