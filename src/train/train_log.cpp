#include "train/train_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kLogName = "trainer_log.jsonl";

std::string text_of(const LogLine& line) {
  return Json{{"step", line.step},        {"epoch", line.epoch},         {"loss", line.loss},
              {"lr", line.learning_rate}, {"grad_norm", line.grad_norm}, {"tokens", line.tokens},
              {"seconds", line.seconds}}
             .dump() +
         "\n";
}

// The lines up to step. A last line that a kill cut short is passed over.
std::vector<LogLine> read_lines(const fs::path& path, std::int64_t step) {
  std::vector<LogLine> lines;
  if (step == 0 || !fs::exists(path)) return lines;
  std::istringstream in(read_text(path));
  for (std::string text; std::getline(in, text);) {
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded() || !json.contains("step") || json["step"].get<std::int64_t>() > step) break;
    lines.push_back({json.value("step", std::int64_t(0)), json.value("epoch", 0.0), json.value("loss", 0.0),
                     json.value("lr", 0.0), json.value("grad_norm", 0.0),
                     json.value("tokens", std::int64_t(0)), json.value("seconds", 0.0)});
  }
  return lines;
}

File rewrite(const fs::path& path, const std::vector<LogLine>& lines) {
  std::string text;
  for (const LogLine& line : lines) text += text_of(line);
  write_text_atomically(path, text);
  return File::open_append(path);
}

}  // namespace

TrainLog::TrainLog(const fs::path& folder, std::int64_t step, bool tensorboard)
    : folder_(folder),
      lines_(read_lines(folder / kLogName, step)),
      file_(rewrite(folder / kLogName, lines_)) {
  if (tensorboard) events_.emplace(folder / "logs", step + 1);
}

void TrainLog::add(const LogLine& line) {
  lines_.push_back(line);
  file_.write(text_of(line));
  if (events_)
    events_->add(line.step, {{"train/loss", line.loss},
                             {"train/learning_rate", line.learning_rate},
                             {"train/grad_norm", line.grad_norm},
                             {"train/epoch", line.epoch}});
}

void TrainLog::draw() const {
  write_text_atomically(folder_ / "loss.svg", loss_svg(lines_));
}

}  // namespace slideway
