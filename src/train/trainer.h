// Trainer: a whole run, from options to a tuned model.
//
//   Trainer trainer(options);          reads headers and data, decides the plan; nothing large yet
//   trainer.plan().table();            --dry-run ends here
//   trainer.run(hooks);                loads, trains, saves
//
// A run that is asked to stop finishes its step, applies every update, saves a checkpoint and returns `interrupted`.
//
// Owns     everything of the run
// Threads  one; hooks are called on it
// Errors   those of every part; a loss or gradient that is not finite ends the run (corrupt: step and layer), and the
//          last checkpoint stands
// Source   docs/training.md
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "train/options.h"
#include "train/train_log.h"
#include "train/train_plan.h"

namespace slideway {

struct TrainHooks {
  std::function<void(const LogLine&, std::int64_t total_steps)> on_step;  // every step, logged or not
  std::function<void(const std::string&)> on_note;                        // "saved …", in the order of events
  std::function<bool()> should_stop;
};

enum class TrainOutcome { finished, interrupted };

class Trainer {
 public:
  explicit Trainer(const TrainOptions& options);
  ~Trainer();

  const TrainPlan& plan() const;
  std::string summary() const;  // model, data, steps: a few lines for people
  // config_yaml: the resolved configuration, saved beside the results.
  TrainOutcome run(const TrainHooks& hooks, const std::string& config_yaml);

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace slideway
