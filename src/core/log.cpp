#include "core/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace slideway {
namespace {

// "warning: " and the like; nothing before an ordinary line.
class Prefix final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    std::string_view text;
    if (message.level == spdlog::level::debug) text = "debug: ";
    if (message.level == spdlog::level::warn) text = "warning: ";
    if (message.level == spdlog::level::err) text = "error: ";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<Prefix>(); }
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> made = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const bool plain = no_color && *no_color;  // no-color.org: any value but the empty one
    // automatic: coloured on a terminal only
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(plain ? spdlog::color_mode::never
                                                                            : spdlog::color_mode::automatic);
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<Prefix>('*').set_pattern("%^%*%$%v");
    auto logger = std::make_shared<spdlog::logger>("slideway", std::move(sink));
    logger->set_formatter(std::move(formatter));
    logger->set_level(spdlog::level::info);
    return logger;
  }();
  return *made;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void set_log_level(LogLevel lowest) {
  logger().set_level(spdlog_level(lowest));
}

void log_line(LogLevel level, const std::string& text) {
  logger().log(spdlog_level(level), spdlog::string_view_t(text));
}

}  // namespace slideway
