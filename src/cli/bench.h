// slideway bench train: how fast this machine trains models of true shapes and random weights.
#pragma once

#include <CLI/App.hpp>

namespace slideway {

void add_bench(CLI::App& app, int& exit_code);

}  // namespace slideway
