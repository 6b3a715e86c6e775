// slideway: the program. Each subcommand is one file; here it is chosen, and what it throws becomes a message and an
// exit code: 0 ok, 1 failed, 2 usage or configuration, 130 interrupted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "cli/bench.h"
#include "cli/generate.h"
#include "cli/inspect.h"
#include "cli/merge.h"
#include "cli/plan.h"
#include "cli/serve.h"
#include "cli/train.h"
#include "core/error.h"

namespace slideway {
namespace {

constexpr int kFailed = 1, kUsage = 2;

int complain(const char* message, int exit_code) {
  std::fflush(stdout);
  std::fprintf(stderr, "slideway: %s\n", message);
  return exit_code;
}

// CLI11 would say only that a command is missing.
void check_command(const CLI::App& app, const std::string& name) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return;
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  fail(ErrorKind::invalid_input, "there is no command ", name, "; there are ", names);
}

int run(int argc, char** argv) {
  CLI::App app("Fine-tunes language models that are larger than the GPU, and serves them.", "slideway");
  app.set_version_flag("--version", "slideway " SLIDEWAY_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  add_train(app, exit_code);
  add_generate(app, exit_code);
  add_inspect(app, exit_code);
  add_merge(app, exit_code);
  add_plan(app, exit_code);
  add_serve(app, exit_code);
  add_bench(app, exit_code);
  if (argc > 1 && argv[1][0] != '-') check_command(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;  // 0: --help, --version
  }
  return exit_code;
}

}  // namespace
}  // namespace slideway

int main(int argc, char** argv) {
  using namespace slideway;
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return complain(error.what(), error.kind() == ErrorKind::invalid_input ? kUsage : kFailed);
  } catch (const std::bad_alloc&) {
    return complain("out of memory", kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}
