// run: the program itself, with arguments; its exit code and what it wrote.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/file.h"
#include "support/temporary_folder.h"

extern char** environ;

namespace slideway {

struct Ran {
  int exit_code = -1;  // 128 + the signal's number where one ended it
  std::string out, err;
};

inline Ran run(std::vector<std::string> arguments, const std::string& input = "") {
  const TemporaryFolder folder;
  write_text_atomically(folder / "in", input);
  arguments.insert(arguments.begin(), SLIDEWAY_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string in = folder / "in", out = folder / "out", err = folder / "err";
  posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed) throw std::runtime_error("cannot start " SLIDEWAY_PROGRAM);
  int status = 0;
  waitpid(pid, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(out), read_text(err)};
}

}  // namespace slideway
