// What a prewarm says while it goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace xqajit::cli {

std::string duration(double seconds);  // "12 s", "3 min 20 s", "1 h 5 min"

// On a terminal one line that is redrawn, and a line for each failure. Elsewhere a line for each kernel that was compiled or failed, and one
// for all hits before it: a list that is in the cache already is told in one line. Called from one thread at a time.
class Progress {
public:
    // columns: of the terminal; 0 where there is none.
    Progress(std::FILE* out, unsigned columns) : out_(out), columns_(columns) {}
    Progress(Progress const&) = delete;
    ~Progress();

    // As xqajit_prewarm_options has them; user is a Progress.
    static void start(void* user, std::uint32_t kernels, std::uint32_t workers, char const* reason);
    static void show(void* user, std::uint32_t done, std::uint32_t total, char const* described);

private:
    void show(std::uint32_t done, std::uint32_t total, std::string const& text);
    void line(std::string const& text);
    void say_hits();
    std::string time_left(std::uint32_t done, std::uint32_t total) const;  // "" where it cannot be told yet, or no more

    std::FILE* const out_;
    unsigned const columns_;
    bool drawn_ = false;  // the terminal's line
    std::uint32_t done_ = 0, total_ = 0, hits_ = 0;
    std::uint32_t done_at_start_ = 0;
    bool started_ = false;
    std::chrono::steady_clock::time_point started_at_;
};

unsigned terminal_columns(std::FILE* stream);  // 0 where it is no terminal

}  // namespace xqajit::cli
