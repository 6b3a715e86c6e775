// slideway merge: a model and an adapter → a model that needs no adapter.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

// The command's callback does the work. exit_code stays 0: what fails, throws.
void add_merge(CLI::App& app, int& exit_code);

}  // namespace slideway
