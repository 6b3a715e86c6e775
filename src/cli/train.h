// slideway train: a configuration file and key=value words → a Trainer, a bar or plain lines, an exit code.
//
// Ctrl-C and SIGTERM ask the run to stop: it finishes its step, saves and exits with 130. A second one ends it at once.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

// exit_code is set by the command's callback.
void add_train(CLI::App& app, int& exit_code);

}  // namespace slideway
