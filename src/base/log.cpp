#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <array>
#include <mutex>
#include <utility>

namespace xqajit::log {
namespace {

constexpr std::array<std::pair<std::string_view, Level>, 6> kLevels{{{"trace", Level::kTrace},
                                                                     {"debug", Level::kDebug},
                                                                     {"info", Level::kInfo},
                                                                     {"warning", Level::kWarning},
                                                                     {"error", Level::kError},
                                                                     {"off", Level::kOff}}};

spdlog::level::level_enum to_spdlog(Level level) {
    return level == Level::kOff ? spdlog::level::off : static_cast<spdlog::level::level_enum>(level);
}

class HostSink final : public spdlog::sinks::sink {
public:
    HostSink() { set_pattern("[%Y-%m-%d %H:%M:%S.%e] xqajit %l: %v"); }

    void redirect(xqajit_log_fn function, void* user) {
        std::lock_guard const lock(mutex_);
        function_ = function;
        user_ = user;
    }

    void log(spdlog::details::log_msg const& message) override {
        xqajit_log_fn function = nullptr;
        void* user = nullptr;
        {
            std::lock_guard const lock(mutex_);
            function = function_;
            user = user_;
        }
        if (function == nullptr) return standard_error_.log(message);
        std::string const text(message.payload.data(), message.payload.size());  // the host gets a terminated string
        function(user, static_cast<int>(message.level), text.c_str());
    }

    void flush() override { standard_error_.flush(); }
    void set_pattern(std::string const& pattern) override { standard_error_.set_pattern(pattern); }
    void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
        standard_error_.set_formatter(std::move(formatter));
    }

private:
    std::mutex mutex_;
    xqajit_log_fn function_ = nullptr;
    void* user_ = nullptr;
    spdlog::sinks::stderr_sink_mt standard_error_;
};

struct Log {
    std::shared_ptr<HostSink> sink = std::make_shared<HostSink>();
    spdlog::logger logger{"xqajit", sink};

    Log() { logger.set_level(spdlog::level::warn); }
};

Log& instance() {
    static Log* const log = new Log;  // never destroyed: threads may still log while the process exits
    return *log;
}

}  // namespace

void set_sink(xqajit_log_fn sink, void* user) { instance().sink->redirect(sink, user); }

void set_level(Level level) { instance().logger.set_level(to_spdlog(level)); }

std::optional<Level> parse_level(std::string_view name) {
    for (auto const& [known, level] : kLevels)
        if (known == name) return level;
    return std::nullopt;
}

bool enabled(Level level) { return level != Level::kOff && instance().logger.should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) {
    if (enabled(level)) instance().logger.log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace xqajit::log
