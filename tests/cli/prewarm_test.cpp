// The prewarm command: shards, progress, and what a signal does to it.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "catch.h"
#include "prewarm_progress.h"
#include "shell.h"

namespace {

using namespace xqajit;
using namespace testing;
using nlohmann::json;

// Six kernels for one architecture.
constexpr char kSix[] = R"({"version": 1, "defaults": {"q_dtype": "bf16", "num_kv_heads": 8, "num_q_heads": 8, "page_size": 64},
  "shapes": [{"name": "six", "head_dim": [16, 32, 48, 64, 80, 96]}]})";

std::size_t lines_of(std::string const& text) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')); }

// Runs a prewarm of a list, and sends it these signals once so many compiles have begun.
ProcessResult interrupted(Shell& shell, std::string const& list, int compiles, std::vector<std::string> const& signals) {
    std::string const count = shell.folder() + "/compiles";
    shell.set("FAKE_NVRTC_COUNT", count);
    std::string script =
        "( while [ \"$(cat " + count + " 2>/dev/null | wc -l)\" -lt " + std::to_string(compiles) + " ]; do sleep 0.02; done";
    for (std::string const& name : signals) script += "; kill -" + name + " $$";
    script += " ) </dev/null >/dev/null 2>&1 & exec " + std::string(XQAJIT) + " prewarm --arch sm_90a --jobs 2 --shapes " + list;
    Result<ProcessResult> const result = shell.try_program({"/bin/sh", "-c", script});
    REQUIRE(result.ok());
    INFO(result->out << result->err);
    return *result;
}

// A zombie has ended: whoever adopted it has yet to take note.
bool runs(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string stat;
    std::getline(file, stat);
    std::size_t const state = stat.rfind(") ");
    return state != std::string::npos && stat.substr(state + 2, 1) != "Z";
}

// The workers that ever compiled; false if one of them is still there after a while.
bool all_workers_are_gone(Shell const& shell) {
    for (int attempt = 0; attempt < 200; ++attempt) {
        std::ifstream file(shell.folder() + "/compiles");
        std::string target;
        pid_t process = 0;
        bool gone = true;
        while (file >> target >> process) gone = gone && !runs(process);
        if (gone) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

}  // namespace

TEST_CASE("a signal stops a prewarm, what it has is kept, and the next run goes on", "[cli][J25]") {
    struct Row {
        char const* signal;
        int exit_code;
    };
    for (Row const& row : {Row{"INT", 130}, Row{"TERM", 143}}) {
        INFO(row.signal);
        Shell shell;
        shell.set("FAKE_NVRTC_ONLY", "-DXQAJIT_HEAD_DIM=80");  // which never ends; the others do
        shell.set("FAKE_NVRTC_HANG", "1");
        std::string const list = shell.write("list.json", kSix);
        ProcessResult const result = interrupted(shell, list, 6, {row.signal});
        CHECK(result.end == ProcessResult::End::kExited);
        CHECK(result.code == row.exit_code);
        json const kept = shell.document({"cache", "verify"});
        std::size_t const done = kept["summary"]["ok"];
        CHECK(done < 6);
        CHECK(kept["temporaries"].empty());
        CHECK(contains(result.err, "xqajit: " + std::to_string(done) + " of 6 kernels done; run it again to go on"));
        CHECK(contains(result.out, std::to_string(done) + " compiled, 0 hits, 0 failed, " + std::to_string(6 - done) +
                                       " not begun or cut short"));
        CHECK(all_workers_are_gone(shell));
        shell.unset("FAKE_NVRTC_HANG");
        json const again = shell.document({"prewarm", "--arch", "sm_90a", "--shapes", list});
        CHECK(again["summary"]["hits"] == done);
        CHECK(again["summary"]["compiled"] == 6 - done);
    }
}

TEST_CASE("a second signal ends a prewarm at once, and its workers with it", "[cli][J25]") {
    Shell shell;
    shell.set("FAKE_NVRTC_HANG", "1");
    // Two signals that come together may meet either action: the process ends in any case, and leaves nobody behind.
    ProcessResult const result = interrupted(shell, shell.write("list.json", kSix), 2, {"INT", "TERM"});
    if (result.end == ProcessResult::End::kSignalled)
        CHECK(result.code == SIGTERM);
    else
        CHECK((result.code == 130 || result.code == 143));
    CHECK(all_workers_are_gone(shell));
    CHECK(shell.document({"cache", "verify"})["summary"]["corrupt"] == 0);
}

TEST_CASE("workers die with a prewarm that is killed", "[cli][J25]") {
    Shell shell;
    shell.set("FAKE_NVRTC_HANG", "1");
    ProcessResult const result = interrupted(shell, shell.write("list.json", kSix), 2, {"KILL"});
    CHECK(result.end == ProcessResult::End::kSignalled);
    CHECK(all_workers_are_gone(shell));
}

TEST_CASE("an interrupted prewarm prints its document too", "[cli]") {
    Shell shell;
    shell.set("FAKE_NVRTC_HANG", "1");
    std::string const list = shell.write("list.json", kSix);
    json const document = json::parse(interrupted(shell, list + " --json", 2, {"INT"}).out, nullptr, false);
    REQUIRE(document.is_object());
    CHECK(document["summary"]["stopped"] == 6);
    CHECK(document["kernels"][0]["result"] == "stopped");
}

TEST_CASE("the shards of a list are the list, and a wrong one is refused with what is accepted", "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kSix);
    std::size_t kernels = 0;
    for (char const* shard : {"0/3", "1/3", "2/3"}) {
        json const document = shell.document({"prewarm", "--arch", "sm_90a,sm_80", "--shapes", list, "--shard", shard});
        CHECK(document["shard"]["index"] == shard[0] - '0');
        CHECK(document["shard"]["count"] == 3);
        CHECK(document["shard"]["kernels_of_all"] == 12);
        kernels += document["summary"]["compiled"].get<std::size_t>();
    }
    CHECK(kernels == 12);
    CHECK(shell.document({"cache", "ls"})["entries"].size() == 12);
    CHECK(contains(shell.run({"prewarm", "--arch", "sm_90a", "--shapes", list, "--shard", "1/3"}).out, "shard 1/3 of 6 kernels: "));
    CHECK(shell.run({"prewarm", "--arch", "sm_90a", "--shapes", list, "--shard", "0/1"}).code == 0);
    for (char const* wrong :
         {"3/3", "4/3", "0/0", "1", "/", "1/", "/2", "-1/2", "01/2", "1/02", "0/65537", "a/b", "0/2/3", "0 /2", ""}) {
        ProcessResult const result = shell.run({"prewarm", "--arch", "sm_90a", "--shapes", list, "--shard", wrong});
        INFO(wrong << ": " << result.err);
        CHECK(result.code == 2);
        CHECK(contains(result.err, "--shard"));
        CHECK(contains(result.err, "'" + std::string(wrong) + "'"));
        CHECK(contains(result.err, "0..N-1"));
    }
}

TEST_CASE("without a terminal there is a line for the workers, one for all hits, and one a kernel with the time that is left",
          "[cli]") {
    Shell shell;
    std::string const list = shell.write("list.json", kList);
    CHECK(shell.run({"prewarm", "--arch", "sm_80", "--shapes", list}).code == 0);
    ProcessResult const result = shell.run({"prewarm", "--arch", "sm_80,sm_90a", "--shapes", list, "--jobs", "1"});
    INFO(result.err);
    CHECK(lines_of(result.err) == 4);
    CHECK(contains(result.err, "[2/4] 2 hits\n1 worker: as asked for\n[3/4] "));
    CHECK(contains(result.err, " s left\n[4/4] "));
    CHECK_FALSE(contains(result.err, "\x1b"));
    for (char const* part : {"SLOWEST", "FAMILY  TARGET  SECONDS  SHAPE", "compile time ", " x with 1 worker\n",
                             "3 entries, 4 kernels: 2 compiled, 2 hits, 0 failed in "}) {
        INFO(part);
        CHECK(contains(result.out, part));
    }
    ProcessResult const hits = shell.run({"prewarm", "--arch", "sm_80", "--shapes", list});
    CHECK(hits.err == "[2/2] 2 hits\n");
    CHECK(lines_of(hits.out) == 1);
    ProcessResult const automatic = shell.run({"prewarm", "--arch", "sm_86", "--shapes", list});
    CHECK(contains(automatic.err, " of memory for 256 MiB each"));
}

TEST_CASE("on a terminal there is one line that is redrawn, no longer than the terminal, and each failure stays", "[cli]") {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    {
        cli::Progress progress(file, 40);
        cli::Progress::show(&progress, 1, 4, "gmma sm_90a 0123456789ab hit (first)");
        cli::Progress::start(&progress, 3, 2, "2 cores");
        cli::Progress::show(&progress, 2, 4, "gmma sm_90a 1123456789ab failed (second): a bad day");
        cli::Progress::show(&progress, 3, 4, "gmma sm_90a 2123456789ab compiled in 812 ms (third\xC3\xA9\xC3\xA9)");
    }
    std::rewind(file);
    char bytes[2000] = {};
    std::string const text(bytes, std::fread(bytes, 1, sizeof bytes, file));
    std::fclose(file);
    CHECK(contains(text, "\r\033[K2 workers: 2 cores\n"));
    CHECK(contains(text, "[2/4] gmma sm_90a 1123456789ab failed (second): a bad day\n"));
    CHECK(lines_of(text) == 3);
    for (std::size_t at = text.find("\r\033[K["); at != std::string::npos; at = text.find("\r\033[K[", at + 1)) {
        std::size_t const end = text.find_first_of("\r\n", at + 1);
        if (text[at + 4] == '[' && (text[at + 5] == '#' || text[at + 5] == ' ')) CHECK(end - at - 4 < 40);
    }
    CHECK(cli::duration(0.4) == "0 s");
    CHECK(cli::duration(59.4) == "59 s");
    CHECK(cli::duration(200) == "3 min 20 s");
    CHECK(cli::duration(3900) == "1 h 5 min");
}
