// slideway plan: what a training run would take of a machine that need not be there.
#pragma once

namespace CLI {
class App;
}

namespace slideway {

void add_plan(CLI::App& app, int& exit_code);

}  // namespace slideway
