// TrainLog: what a run leaves to look at: trainer_log.jsonl, a line a logged step, and loss.svg, its curve; on
// request also TensorBoard's event files in logs/, with the names that transformers' Trainer gives.
//
// A line: {"step", "epoch", "loss", "lr", "grad_norm", "tokens", "seconds"}; loss is the mean over trained
// tokens of the steps since the line before, tokens counts those of the run so far, seconds those of this process.
// Numbers are printed so that they read back exactly.
//
// Threads  one at a time
// Errors   io
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "train/event_file.h"

namespace slideway {

struct LogLine {
  std::int64_t step = 0;  // of total, from 1
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
};

class TrainLog {
 public:
  // Lines after `step` of an earlier run are taken out: they will be written again.
  TrainLog(const std::filesystem::path& folder, std::int64_t step, bool tensorboard = false);

  void add(const LogLine& line);
  const std::vector<LogLine>& lines() const { return lines_; }
  void draw() const;  // writes loss.svg

 private:
  std::filesystem::path folder_;
  std::vector<LogLine> lines_;
  File file_;
  std::optional<EventFile> events_;
};

// The curve of loss over steps as a picture: axes with round numbers, a thin line of the values, a bold one of their
// running mean.
std::string loss_svg(const std::vector<LogLine>& lines);

}  // namespace slideway
