#include "cli/train.h"

#include <signal.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/config.h"
#include "cli/progress.h"
#include "train/trainer.h"

namespace slideway {
namespace {

volatile sig_atomic_t stop_asked = 0;

void ask_to_stop(int) {
  if (stop_asked) _exit(130);
  stop_asked = 1;
}

// SIGINT and SIGTERM ask the run to stop while this object lives.
class StopSignals {
 public:
  StopSignals() {
    struct sigaction action{};
    action.sa_handler = ask_to_stop;
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~StopSignals() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_, old_term_;
};

struct Words {
  std::vector<std::string> words;  // the configuration file, if any, and key=value overrides
  bool dry_run = false;
};

int train(const Words& given) {
  const TrainOptions options = load_train_options(given.words);
  const std::string yaml = config_yaml(options);
  Trainer trainer(options);
  std::fprintf(stderr, "%s\n%s\n%s", yaml.c_str(), trainer.summary().c_str(), trainer.plan().table().c_str());
  if (given.dry_run) return 0;

  signal(SIGXFSZ,
         SIG_IGN);  // a file that passes the process's size limit is an error with a name, as a full disk is
  const StopSignals signals;
  Progress progress(isatty(STDERR_FILENO));
  const TrainOutcome outcome =
      trainer.run({.on_step = [&](const LogLine& line, std::int64_t total) { progress.step(line, total); },
                   .on_note = [&](const std::string& text) { progress.note(text); },
                   .should_stop = [] { return stop_asked != 0; }},
                  yaml);
  if (outcome == TrainOutcome::finished) return 0;
  progress.note("interrupted; go on with resume_from_checkpoint=auto");
  return 130;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("train", "Fine-tune a model, all of its parameters or a LoRA adapter");
  auto given = std::make_shared<Words>();
  command->add_option("config", given->words, "A YAML file, and key=value words that override it")
      ->required();
  command->add_flag("--dry-run", given->dry_run, "Print configuration and memory plan, then stop");
  command->footer(config_help());
  command->callback([given, &exit_code] { exit_code = train(*given); });
}

}  // namespace slideway
