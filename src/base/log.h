// One process-wide sink. Levels as xqajit_log_fn's. Nothing is logged on a warm launch.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace xqajit::log {

enum class Level : int { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kOff = 5 };

void set_sink(xqajit_log_fn sink, void* user); // null: standard error
void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view text);

inline void debug(std::string_view text) { write(Level::kDebug, text); }
inline void info(std::string_view text) { write(Level::kInfo, text); }
inline void warning(std::string_view text) { write(Level::kWarning, text); }
inline void error(std::string_view text) { write(Level::kError, text); }

} // namespace xqajit::log
