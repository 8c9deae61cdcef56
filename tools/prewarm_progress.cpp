#include "prewarm_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <string_view>

#include "cli.h"

namespace xqajit::cli {
namespace {

// "gmma sm_90a 0123456789ab hit (name)": the result stands before the first parenthesis.
bool has_result(std::string_view described, std::string_view word) {
    return described.substr(0, described.find(" (")).find(" " + std::string(word)) != std::string_view::npos;
}

// Whole characters of UTF-8 in so many bytes.
std::string cut(std::string text, std::size_t bytes) {
    if (text.size() <= bytes) return text;
    while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
    text.resize(bytes);
    return text;
}

std::string count(std::uint32_t done, std::uint32_t total) { return std::to_string(done) + "/" + std::to_string(total); }

}  // namespace

std::string duration(double seconds) {
    auto const whole = static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds)));
    if (whole < 60) return std::to_string(whole) + " s";
    if (whole < 3600) return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
    return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " min";
}

unsigned terminal_columns(std::FILE* stream) {
    constexpr unsigned kUsual = 80;
    int const fd = ::fileno(stream);
    if (::isatty(fd) != 1) return 0;
    winsize size{};
    return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

Progress::~Progress() {
    say_hits();
    if (drawn_) std::fputc('\n', out_);
}

void Progress::start(void* user, std::uint32_t, std::uint32_t workers, char const* reason) {
    Progress& self = *static_cast<Progress*>(user);
    self.started_ = true;
    self.started_at_ = std::chrono::steady_clock::now();
    self.done_at_start_ = self.done_;
    self.say_hits();
    self.line(std::to_string(workers) + (workers == 1 ? " worker: " : " workers: ") + reason);
}

void Progress::show(void* user, std::uint32_t done, std::uint32_t total, char const* described) {
    static_cast<Progress*>(user)->show(done, total, printable(described));
}

void Progress::show(std::uint32_t done, std::uint32_t total, std::string const& text) {
    bool const is_hit = has_result(text, "hit");
    std::string const left = time_left(done, total);
    if (!is_hit) say_hits();  // counted as done before this one
    done_ = done;
    total_ = total;
    hits_ += is_hit;
    if (columns_ == 0) {
        if (!is_hit) line("[" + count(done, total) + "] " + text + (left.empty() ? "" : ", about " + left + " left"));
        return;
    }
    if (has_result(text, "failed")) line("[" + count(done, total) + "] " + text);
    constexpr std::size_t kWidth = 24;
    std::string bar(kWidth * done / total, '#');
    bar.resize(kWidth, ' ');
    std::string const drawn = "[" + bar + "] " + count(done, total) + (left.empty() ? "" : " about " + left + " left") + " " + text;
    std::fprintf(out_, "\r\033[K%s", cut(drawn, columns_ - 1).c_str());
    std::fflush(out_);
    drawn_ = true;
}

void Progress::line(std::string const& text) {
    std::fprintf(out_, "%s%s\n", drawn_ ? "\r\033[K" : "", text.c_str());
    std::fflush(out_);
    drawn_ = false;
}

// The terminal's line says them as they come.
void Progress::say_hits() {
    if (hits_ != 0 && columns_ == 0)
        line("[" + count(done_, total_) + "] " + std::to_string(hits_) + (hits_ == 1 ? " hit" : " hits"));
    hits_ = 0;
}

std::string Progress::time_left(std::uint32_t done, std::uint32_t total) const {
    if (!started_ || done <= done_at_start_ || done >= total) return {};
    std::chrono::duration<double> const passed = std::chrono::steady_clock::now() - started_at_;
    return duration(passed.count() / (done - done_at_start_) * (total - done));
}

}  // namespace xqajit::cli
