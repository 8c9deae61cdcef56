// xqajit prewarm: a shape list becomes kernels on disk.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli.h"

namespace xqajit::cli {
namespace {

// A bar that is redrawn on a terminal, one line a kernel elsewhere. Called from one thread at a time.
class Progress {
public:
    static void show(void* self, std::uint32_t done, std::uint32_t total, char const* text) {
        static_cast<Progress*>(self)->show(done, total, text);
    }
    ~Progress() {
        if (on_terminal_ && shown_) std::fputc('\n', stderr);
    }

private:
    void show(std::uint32_t done, std::uint32_t total, char const* described) {
        std::string const safe = printable(described);
        char const* const text = safe.c_str();
        shown_ = true;
        if (!on_terminal_) {
            std::fprintf(stderr, "[%u/%u] %s\n", done, total, text);
            return;
        }
        constexpr std::uint32_t kWidth = 24;
        std::string const bar(std::size_t{kWidth} * done / total, '#');
        std::fprintf(stderr, "\r\033[K[%-24s] %u/%u %.80s", bar.c_str(), done, total, text);
        std::fflush(stderr);
    }
    bool const on_terminal_ = ::isatty(STDERR_FILENO) == 1;
    bool shown_ = false;
};

void print_report(std::string const& report, bool json) {
    if (report.empty()) return;
    if (json) return print(report);
    auto const document = nlohmann::ordered_json::parse(report);
    auto const& summary = document["summary"];
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", summary["seconds"].get<double>());
    print(to_text(summary["entries"]) + " entries, " + to_text(summary["kernels"]) + " kernels: " + to_text(summary["compiled"]) +
          " compiled, " + to_text(summary["hits"]) + " hits, " + to_text(summary["failed"]) + " failed in " + seconds + " s");
}

}  // namespace

int prewarm(PrewarmOptions const& options) {
    std::string const shapes = read_text_file(options.shapes);
    Service service(options.cache_dir);
    xqajit_prewarm_options call = XQAJIT_PREWARM_OPTIONS_INIT;
    call.jobs = options.jobs;
    call.archs = options.archs.empty() ? nullptr : options.archs.c_str();
    call.progress = &Progress::show;
    try {
        std::string report;
        {
            Progress progress;
            call.user = &progress;
            report = service.prewarm(shapes, call);
        }
        print_report(report, options.json);
    } catch (Error const& error) {
        print_report(error.report(), options.json);
        std::string const text = error.what();
        print_error(text.starts_with("line ") ? options.shapes + ": " + text : text);
        return exit_code_of(error.code());
    }
    return kDone;
}

}  // namespace xqajit::cli
