// Lines for the person at the terminal, on stderr: standard output belongs to results.
//
// Threads  any
#pragma once

#include <sstream>
#include <string>

namespace slideway {

enum class LogLevel { debug, info, warning, error };

void set_log_level(LogLevel lowest);
void log_line(LogLevel level, const std::string& text);

template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  log_line(level, out.str());
}

}  // namespace slideway
