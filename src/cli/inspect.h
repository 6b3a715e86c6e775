// slideway inspect: what lies in a model or adapter, read from headers alone.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

// The command's callback does the work. exit_code stays 0: what fails, throws.
void add_inspect(CLI::App& app, int& exit_code);

}  // namespace slideway
