#include "core/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace slideway {
namespace {

TEST(Log, WritesToStandardErrorWithTheLevelBeforeAllButPlainLines) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log(LogLevel::debug, "not ", "shown");
  log(LogLevel::info, "plain {} %v line ", 7);
  log(LogLevel::warning, "careful");
  set_log_level(LogLevel::error);
  log(LogLevel::warning, "not shown");
  log(LogLevel::error, "bad");
  set_log_level(LogLevel::info);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "plain {} %v line 7\nwarning: careful\nerror: bad\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

// What this program writes when it is run again on a terminal, logging one warning.
std::string on_a_terminal(const char* no_color) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::setenv("TERM", "xterm-256color", 1);
    ::setenv("NO_COLOR", no_color, 1);
    ::execl("/proc/self/exe", "test", "--gtest_filter=Log.DISABLED_WarnsOnce",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", "--gtest_color=no", nullptr);
    ::_exit(1);
  }
  std::string text;
  char part[256];
  for (ssize_t got; (got = ::read(terminal, part, sizeof part)) > 0;) text.append(part, std::size_t(got));
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST(Log, DISABLED_WarnsOnce) {
  log(LogLevel::warning, "careful");
}  // for on_a_terminal

TEST(Log, ColoursTheLevelOnATerminalUnlessNoColorIsSet) {
  EXPECT_THAT(on_a_terminal(""),
              testing::ContainsRegex("\x1b\\[.*warning: \x1b\\[mcareful|\x1b\\[.*warning: \x1b\\[0mcareful"));
  EXPECT_THAT(on_a_terminal("1"), testing::HasSubstr("warning: careful"));
  EXPECT_THAT(on_a_terminal("1"), testing::Not(testing::HasSubstr("\x1b")));
}

}  // namespace
}  // namespace slideway
