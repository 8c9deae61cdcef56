// One process-wide sink. Levels as xqajit_log_fn's. Nothing is logged on a warm launch.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"

namespace xqajit::log {

enum class Level : int { kTrace = 0, kDebug = 1, kInfo = 2, kWarning = 3, kError = 4, kOff = 5 };

// null: standard error. The sink is called on the logging thread, by several threads at once, with no lock of ours held: a host whose
// sink takes a lock of its own cannot deadlock with a thread that logs while it holds that lock.
void set_sink(xqajit_log_fn sink, void* user);
void set_level(Level level);                              // at first kWarning
std::optional<Level> parse_level(std::string_view name);  // "trace", "debug", "info", "warning", "error", "off"
bool enabled(Level level);
void write(Level level, std::string_view text);  // never fails

inline void debug(std::string_view text) { write(Level::kDebug, text); }
inline void info(std::string_view text) { write(Level::kInfo, text); }
inline void warning(std::string_view text) { write(Level::kWarning, text); }

}  // namespace xqajit::log
