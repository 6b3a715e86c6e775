// slideway serve: a model and its adapters behind an OpenAI-compatible API.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

void add_serve(CLI::App& app, int& exit_code);

}  // namespace slideway
