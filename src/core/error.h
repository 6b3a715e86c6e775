// Error: the one exception of this program, with a kind that decides the exit code and the HTTP status.
//
// Outcomes that are normal (a pool is full, a stream has ended) are values, not errors. A message says what was
// expected, what was found and where: the tensor, the file, the offset, both shapes.
// Caught in three places only: cli/main, serve/api, serve/engine.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace slideway {

enum class ErrorKind {
  invalid_input,  // what the user gave is wrong: an option, a data row, a request
  not_found,
  corrupt,        // a file or message contradicts itself
  unsupported,    // understood, but not something this program does
  out_of_memory,  // a budget or the machine has too little
  io,
  device,
  internal,  // a promise of this program was broken
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error(kind) whose message is the parts, written one after another.
template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  throw Error(kind, out.str());
}

// States a promise of this program to itself; kept in every build. No user input can reach one.
#define CHECK(cond, ...)                                                                            \
  ((cond) ? void(0)                                                                                 \
          : ::slideway::fail(::slideway::ErrorKind::internal, __FILE__, ":", __LINE__, ": ", #cond, \
                             " " __VA_OPT__(, ) __VA_ARGS__))

}  // namespace slideway
