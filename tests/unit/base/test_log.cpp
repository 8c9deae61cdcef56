#include "base/log.h"

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch.h"

using namespace xqajit;

namespace {

struct Recorder {
    std::mutex mutex;
    std::vector<std::pair<int, std::string>> lines;

    static void sink(void* user, int level, char const* text) {
        auto* const recorder = static_cast<Recorder*>(user);
        std::lock_guard const lock(recorder->mutex);
        recorder->lines.emplace_back(level, text);
    }
};

// Records for as long as it lives.
class Recording {
public:
    explicit Recording(log::Level level) {
        log::set_sink(&Recorder::sink, &recorder_);
        log::set_level(level);
    }
    ~Recording() {
        log::set_sink(nullptr, nullptr);
        log::set_level(log::Level::kWarning);
    }
    std::vector<std::pair<int, std::string>> const& lines() const { return recorder_.lines; }

private:
    Recorder recorder_;
};

}  // namespace

TEST_CASE("the host's sink gets each message with the level's public number", "[base][log]") {
    Recording const recording(log::Level::kTrace);
    log::write(log::Level::kTrace, "t");
    log::debug("d");
    log::info("i {} %s");
    log::warning(std::string_view("warning and more", 7));
    log::write(log::Level::kError, "e");
    CHECK(recording.lines() ==
          std::vector<std::pair<int, std::string>>{{0, "t"}, {1, "d"}, {2, "i {} %s"}, {3, "warning"}, {4, "e"}});
}

TEST_CASE("messages below the level are dropped", "[base][log]") {
    for (int level = 0; level <= 5; ++level) {
        Recording const recording(static_cast<log::Level>(level));
        for (int written = 0; written < 5; ++written) {
            CHECK(log::enabled(static_cast<log::Level>(written)) == (written >= level));
            log::write(static_cast<log::Level>(written), "text");
        }
        CHECK(recording.lines().size() == static_cast<std::size_t>(5 - level));
    }
    CHECK_FALSE(log::enabled(log::Level::kOff));
}

TEST_CASE("the first level is warning", "[base][log]") {
    CHECK(log::enabled(log::Level::kWarning));
    CHECK_FALSE(log::enabled(log::Level::kInfo));
}

TEST_CASE("threads log at once without losing a message", "[base][log]") {
    constexpr int kThreads = 4;
    constexpr int kMessages = 500;
    Recording const recording(log::Level::kInfo);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([] {
            for (int message = 0; message < kMessages; ++message) log::info("text");
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(recording.lines().size() == kThreads * kMessages);
}

TEST_CASE("a sink may log itself", "[base][log]") {
    static int depth = 0;
    depth = 0;
    log::set_sink(
        [](void*, int, char const*) {
            if (++depth == 1) log::write(log::Level::kError, "from inside");
        },
        nullptr);
    log::write(log::Level::kError, "outer");
    log::set_sink(nullptr, nullptr);
    CHECK(depth == 2);
}

TEST_CASE("every level parses from its name", "[base][log]") {
    char const* const names[] = {"trace", "debug", "info", "warning", "error", "off"};
    for (int level = 0; level <= 5; ++level) CHECK(log::parse_level(names[level]) == static_cast<log::Level>(level));
    for (char const* const bad : {"", "Warning", "warn", "critical", "0"}) CHECK_FALSE(log::parse_level(bad).has_value());
}
