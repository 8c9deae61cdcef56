#include <signal.h>
#include <sys/stat.h>

#include <thread>

#include "base/subprocess.h"
#include "jit/compiler.h"
#include "support.h"

using namespace xqajit;
using namespace xqajit::test;
using namespace std::chrono_literals;

namespace {

Result<CompiledImage> compile_here(CompileJob const& job = sample_job(), std::chrono::milliseconds timeout = 60s) {
    return run_job_in_worker(WORKER, fake_identity(), job, timeout);
}

}  // namespace

TEST_CASE("a worker gives the image that a compile in this process gives", "[jit]") {
    auto const there = compile_here();
    auto const here = run_job(*open_fake(), sample_job());
    INFO(there.status().message());
    REQUIRE(there.ok());
    REQUIRE(here.ok());
    CHECK(there->image == here->image);
    CHECK(there->log == here->log);
    CHECK(there->registers == here->registers);
    CHECK(there->nvrtc_version == here->nvrtc_version);
}

TEST_CASE("what the compiler prints does not mix with the result", "[jit]") {
    ScopedEnvironment const chatter("FAKE_NVRTC_CHATTER", "1");
    CHECK(compile_here().ok());
}

TEST_CASE("a compiler that crashes, hangs or runs out of memory is a status that names kernel and target", "[jit]") {
    struct Case {
        char const *variable, *value;
        xqajit_status code;
        char const* words;
        std::chrono::milliseconds timeout = 60s;
    };
    for (Case const& each :
         {Case{"FAKE_NVRTC_CRASH", "1", XQAJIT_COMPILE_FAILED, "crashed on mmha sm_90a (killed by SIGSEGV"},
          Case{"FAKE_NVRTC_HANG", "1", XQAJIT_COMPILE_FAILED, "did not finish mmha sm_90a within 0.300 s", 300ms},
          Case{"FAKE_NVRTC_MEMORY", "error", XQAJIT_OUT_OF_MEMORY, "ran out of memory on mmha sm_90a"},
          Case{"FAKE_NVRTC_MEMORY", "throw", XQAJIT_OUT_OF_MEMORY, "ran out of memory on mmha sm_90a"},
          Case{"FAKE_NVRTC_MEMORY", "abort", XQAJIT_OUT_OF_MEMORY, "ran out of memory on mmha sm_90a"},
          Case{"FAKE_NVRTC_MEMORY", "kill", XQAJIT_COMPILE_FAILED, "was killed on mmha sm_90a (killed by SIGKILL"},
          Case{"FAKE_NVRTC_FAIL", "k.cu(1): error: x", XQAJIT_COMPILE_FAILED, "compiling mmha sm_90a failed: k.cu(1): error: x"},
          Case{"FAKE_NVRTC_VERSION", "11.2", XQAJIT_UNAVAILABLE, "too old"},
          Case{"FAKE_NVRTC_ARCHS", "80", XQAJIT_UNSUPPORTED, "target sm_90a is unknown"}}) {
        INFO(each.variable << "=" << each.value);
        ScopedEnvironment const set(each.variable, each.value);
        auto const compiled = compile_here(sample_job(), each.timeout);
        REQUIRE(!compiled.ok());
        INFO(compiled.status().message());
        CHECK(compiled.status().code() == each.code);
        CHECK(contains(compiled.status().message(), each.words));
        if (each.code == XQAJIT_COMPILE_FAILED) CHECK(contains(compiled.status().detail(), "-DXQAJIT_HEAD_DIM=128"));
    }
}

TEST_CASE("one kernel's crash leaves the others alone", "[jit][J05]") {
    ScopedEnvironment const crash("FAKE_NVRTC_CRASH", "1");
    ScopedEnvironment const only("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=3\n");
    constexpr int kJobs = 8;
    std::vector<std::string> images(kJobs);
    std::vector<std::thread> threads;
    for (int i = 0; i < kJobs; ++i)
        threads.emplace_back([&, i] {
            CompileJob job = sample_job();
            job.macros.macros[0].second = std::to_string(i);
            auto const compiled = compile_here(job);
            if (compiled.ok()) images[static_cast<std::size_t>(i)] = compiled->image;
        });
    for (auto& thread : threads) thread.join();
    for (int i = 0; i < kJobs; ++i) {
        INFO(i);
        std::string const& image = images[static_cast<std::size_t>(i)];
        CHECK((i == 3 ? image.empty() : contains(image, "-DXQAJIT_HEAD_DIM=" + std::to_string(i) + "\n")));
    }
}

TEST_CASE("a host that ignores SIGCHLD still gets the image", "[jit]") {
    auto const old = signal(SIGCHLD, SIG_IGN);
    auto const compiled = compile_here();
    signal(SIGCHLD, old);
    INFO(compiled.status().message());
    CHECK(compiled.ok());
}

TEST_CASE("a program that is no worker, or none at all, is a status", "[jit]") {
    TemporaryFolder folder;
    std::string const silent = folder.write("silent", "#!/bin/sh\ncat > /dev/null\necho 'not a result'\n");
    REQUIRE(chmod(silent.c_str(), 0700) == 0);
    auto const compiled = run_job_in_worker(silent, fake_identity(), sample_job(), 60s);
    REQUIRE(!compiled.ok());
    CHECK(compiled.status().code() == XQAJIT_COMPILE_FAILED);
    CHECK(contains(compiled.status().message(), "without a result on mmha sm_90a"));
    CHECK(!run_job_in_worker(folder.path() + "/none", fake_identity(), sample_job(), 60s).ok());
}

TEST_CASE("a worker answers a request that it can't read with an error", "[jit]") {
    auto const process = run_process({WORKER}, "hello", 60s);
    REQUIRE(process.ok());
    CHECK(contains(process->out, "can't read"));
}

TEST_CASE("memory has run out only where there is evidence of it", "[jit]") {
    using End = ProcessResult::End;
    struct Case {
        ProcessResult process;
        bool oom_killed;
        xqajit_status code;
        std::vector<std::string> words;
    };
    for (Case const& each :
         {Case{{End::kSignalled, SIGKILL, "", ""}, false, XQAJIT_COMPILE_FAILED, {"SIGKILL", "by somebody", "lack of memory"}},
          Case{{End::kSignalled, SIGKILL, "", ""}, true, XQAJIT_OUT_OF_MEMORY, {"ran out of memory", "SIGKILL"}},
          Case{{End::kSignalled, SIGKILL, "", "std::bad_alloc"}, false, XQAJIT_OUT_OF_MEMORY, {"ran out of memory"}},
          Case{{End::kSignalled, SIGABRT, "", "what(): std::bad_alloc"},
               false,
               XQAJIT_OUT_OF_MEMORY,
               {"ran out of memory", "SIGABRT"}},
          Case{{End::kSignalled, SIGSEGV, "", ""}, true, XQAJIT_COMPILE_FAILED, {"crashed", "SIGSEGV"}},
          Case{{End::kTimedOut, SIGKILL, "", ""}, true, XQAJIT_COMPILE_FAILED, {"did not finish", "within 7 s"}},
          Case{{End::kUnknown, 0, "", ""}, true, XQAJIT_COMPILE_FAILED, {"/w/worker", "status unknown"}},
          Case{{End::kExited, 1, "", ""}, false, XQAJIT_COMPILE_FAILED, {"/w/worker", "exited with status 1"}}}) {
        Status const status = worker_failure("/w/worker", each.process, sample_job(), 7s, each.oom_killed);
        INFO(status.message());
        CHECK(status.code() == each.code);
        CHECK(contains(status.message(), "mmha sm_90a"));
        CHECK(contains(status.detail(), "-DXQAJIT_HEAD_DIM=128"));
        for (std::string const& word : each.words) CHECK(contains(status.message(), word));
    }
}

TEST_CASE("the worker lies beside the library, or where XQAJIT_WORKER says, which is refused by name if it is no executable",
          "[jit]") {
    auto const beside = find_worker(settings_with({}));
    INFO(beside.status().message());
    REQUIRE(beside.ok());
    struct stat a {
    }, b{};
    REQUIRE(stat(beside->c_str(), &a) == 0);
    REQUIRE(stat(WORKER, &b) == 0);
    CHECK(a.st_ino == b.st_ino);

    auto const named = find_worker(settings_with({"XQAJIT_WORKER=" + std::string(WORKER)}));
    REQUIRE(named.ok());
    CHECK(*named == WORKER);

    TemporaryFolder folder;
    struct Row {
        std::string path;
        char const* reason;
    };
    for (Row const& row : {Row{"/nowhere/worker", "No such file"},
                           {folder.write("plain", "text"), "Permission denied"},
                           {folder.path(), "not a regular file"},
                           {"/dev/null", "not a regular file"},
                           {"xqajit-worker", "a relative path"}}) {
        INFO(row.path);
        auto const wrong = find_worker(settings_with({"XQAJIT_WORKER=" + row.path}));
        REQUIRE(!wrong.ok());
        CHECK(wrong.status().code() == XQAJIT_INVALID_ARGUMENT);
        for (std::string const& part : {"XQAJIT_WORKER is '" + row.path + "'", std::string(row.reason), std::string("accepted is")})
            CHECK(contains(wrong.status().message(), part));
    }
}
