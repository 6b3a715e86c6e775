// Progress of a training run on stderr: one bar that rewrites itself on a terminal, plain lines elsewhere.
//
//   120/400 [01:10<02:44] loss 1.2345 lr 4.1e-05 gnorm 0.83 1234 tok/s 1.7 GiB
//
// Threads  one
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "train/train_log.h"

namespace slideway {

class Progress {
 public:
  explicit Progress(bool terminal);
  ~Progress();

  void step(const LogLine& line, std::int64_t total);
  void note(const std::string& text);  // a line of its own, above the bar

 private:
  std::string bar(const LogLine& line, std::int64_t total);
  bool terminal_;
  bool bar_shown_ = false;
  std::int64_t first_step_ = 0, first_tokens_ = 0;  // of this process, whose seconds count from its start
  double last_seconds_ = 0;
  std::chrono::steady_clock::time_point drawn_{};
};

// "02:44", "1:02:44"
std::string clock_text(double seconds);

}  // namespace slideway
