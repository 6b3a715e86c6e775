// slideway generate: one prompt → the answer's text, as it comes, alone on standard output.
//
// The model's chat template is applied where it has one; --raw continues the text as it stands. Without a seed a draw
// takes one from the system and names it under --verbose, so that it can be repeated.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

// The command's callback does the work. exit_code stays 0: what fails, throws.
void add_generate(CLI::App& app, int& exit_code);

}  // namespace slideway
