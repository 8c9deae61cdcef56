// xqajit prewarm: a shape list becomes kernels on disk.
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"
#include "prewarm_progress.h"

namespace xqajit::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSignals[] = {SIGINT, SIGTERM};
bool handled[std::size(kSignals)];
int stop_signal = 0;  // the first that came

// The next one finds the default action, and ends the process at once; its workers die with it.
void stop(int signal_number) {
    __atomic_store_n(&stop_signal, signal_number, __ATOMIC_RELAXED);
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
        if (handled[i]) ::signal(kSignals[i], SIG_DFL);
}

// From then on a signal asks the prewarm to stop; one that is ignored, as under nohup, stays so.
void stop_on_signals() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
        struct sigaction action {};
        ::sigaction(kSignals[i], nullptr, &action);
        handled[i] = action.sa_handler != SIG_IGN;
    }
    struct sigaction action {};
    action.sa_handler = &stop;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    for (int const signal_number : kSignals) ::sigaddset(&action.sa_mask, signal_number);
    for (std::size_t i = 0; i < std::size(kSignals); ++i)
        if (handled[i]) ::sigaction(kSignals[i], &action, nullptr);
}

std::string fixed(double number, int digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, number);
    return text;
}

// The slowest kernels, and what the workers were worth.
void print_compiles(Json const& document) {
    Json const& summary = document["summary"];
    if (document["slowest"].empty()) return;
    std::vector<std::vector<std::string>> rows = {{"SLOWEST", "FAMILY", "TARGET", "SECONDS", "SHAPE"}};
    for (Json const& kernel : document["slowest"]) {
        std::size_t const names = kernel["names"].size();
        rows.push_back({kernel["key"].get<std::string>().substr(0, 12), kernel["family"], kernel["target"],
                        fixed(kernel["ms"].get<double>() * 1e-3, 2),
                        (names == 0 ? "unnamed" : kernel["names"][0].get<std::string>()) +
                            (names > 1 ? " +" + std::to_string(names - 1) : "")});
    }
    print(table(std::move(rows)));
    std::string const workers = to_text(document["workers"]["count"]);
    print("compile time " + fixed(summary["compile_seconds"], 1) + " s in " + fixed(summary["seconds"], 1) +
          " s: " + fixed(summary["speed_up"], 2) + " x with " + workers + (workers == "1" ? " worker" : " workers"));
}

void print_report(std::string const& report, bool json) {
    if (report.empty()) return;
    if (json) return print(report);
    Json const document = Json::parse(report);
    Json const& summary = document["summary"];
    Json const& shard = document["shard"];
    print_compiles(document);
    std::string text;
    if (shard["count"] != 1) {
        text = "shard " + to_text(shard["index"]) + "/" + to_text(shard["count"]) + " of " + to_text(shard["kernels_of_all"]) +
               " kernels: ";
    }
    text += to_text(summary["entries"]) + " entries, " + to_text(summary["kernels"]) + " kernels: " + to_text(summary["compiled"]) +
            " compiled, " + to_text(summary["hits"]) + " hits, " + to_text(summary["failed"]) + " failed";
    if (summary["stopped"] != 0) text += ", " + to_text(summary["stopped"]) + " not begun or cut short";
    print(text + " in " + fixed(summary["seconds"], 1) + " s");
    if (Json const& remote = document["remote"]; !remote.is_null())
        print("remote: " + to_text(remote["stored"]) + " stored, " + to_text(remote["not_stored"]) + " not stored");
}

}  // namespace

int prewarm(PrewarmOptions const& options) {
    std::string const shapes = read_text_file(options.shapes);
    Service service(options.cache_dir);
    xqajit_prewarm_options call = XQAJIT_PREWARM_OPTIONS_INIT;
    call.jobs = options.jobs;
    call.archs = options.archs.empty() ? nullptr : options.archs.c_str();
    call.progress = &Progress::show;
    call.start = &Progress::start;
    call.stop = &stop_signal;
    if (auto const shard = shard_of(options.shard)) {
        call.shard = shard->index;
        call.shards = shard->count;
    }
    stop_on_signals();
    try {
        std::string report;
        {
            Progress progress(stderr, terminal_columns(stderr));
            call.user = &progress;
            report = service.prewarm(shapes, call);
        }
        print_report(report, options.json);
    } catch (Error const& error) {
        print_report(error.report(), options.json);
        std::string const text = error.what();
        print_error(text.starts_with("line ") ? options.shapes + ": " + text : text);
        return error.code() == XQAJIT_INTERRUPTED ? kSignal + stop_signal : exit_code_of(error.code());
    }
    return kDone;
}

}  // namespace xqajit::cli
