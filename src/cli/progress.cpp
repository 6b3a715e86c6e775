#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/machine.h"
#include "memory/budget.h"

namespace slideway {
namespace {

constexpr int kBarWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr double kPlainSeconds = 5;  // plain lines come at most this often, save the first and the last

std::string blocks(double part) {
  const int full = int(std::clamp(part, 0.0, 1.0) * kBarWidth);
  std::string text;
  for (int i = 0; i < kBarWidth; ++i) text += i < full ? "█" : "░";
  return text;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto all = std::int64_t(std::max(0.0, seconds));
  char text[32];
  if (all >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02d:%02d", static_cast<long long>(all / 3600), int(all / 60 % 60),
                  int(all % 60));
  } else {
    std::snprintf(text, sizeof text, "%02d:%02d", int(all / 60), int(all % 60));
  }
  return text;
}

Progress::Progress(bool terminal) : terminal_(terminal) {}

Progress::~Progress() {
  if (bar_shown_) std::fputc('\n', stderr);
}

std::string Progress::bar(const LogLine& line, std::int64_t total) {
  const std::int64_t done = line.step - first_step_;
  const double left = done > 0 ? line.seconds / double(done) * double(total - line.step) : 0;
  const double rate = line.seconds > 0 ? double(line.tokens - first_tokens_) / line.seconds : 0;
  char text[192];
  std::snprintf(text, sizeof text, "%lld/%lld [%s<%s] loss %.4f lr %.2e gnorm %.3f %.0f tok/s %s",
                static_cast<long long>(line.step), static_cast<long long>(total),
                clock_text(line.seconds).c_str(), clock_text(left).c_str(), line.loss, line.learning_rate,
                line.grad_norm, rate, bytes_text(peak_resident_memory()).c_str());
  return text;
}

void Progress::step(const LogLine& line, std::int64_t total) {
  const bool first = drawn_ == std::chrono::steady_clock::time_point{};
  if (first) first_step_ = line.step - 1;
  const auto now = std::chrono::steady_clock::now();
  const bool last = line.step == total;
  if (terminal_) {
    if (!first && !last && now - drawn_ < kRedraw) return;
    std::fprintf(stderr, "\r\033[K%s %s", blocks(double(line.step) / double(total)).c_str(),
                 bar(line, total).c_str());
    std::fflush(stderr);
    bar_shown_ = true;
  } else {
    if (!first && !last && line.seconds - last_seconds_ < kPlainSeconds) return;
    std::fprintf(stderr, "%s\n", bar(line, total).c_str());
    last_seconds_ = line.seconds;
  }
  drawn_ = now;
}

void Progress::note(const std::string& text) {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  std::fprintf(stderr, "%s\n", text.c_str());
}

}  // namespace slideway
