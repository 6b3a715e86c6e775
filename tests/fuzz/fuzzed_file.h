// What every harness does: the input as a file, and which errors are answers rather than findings.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/log.h"

namespace slideway {

// A file in memory that holds the input; opened by path like any other.
class FuzzedFile {
 public:
  FuzzedFile(const std::uint8_t* data, std::size_t size) : descriptor_(::memfd_create("input", 0)) {
    CHECK(::write(descriptor_, data, size) == ::ssize_t(size));
  }
  ~FuzzedFile() { ::close(descriptor_); }
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// Runs body; an Error is an answer, unless it says that a promise of this program was broken.
template <class Body>
void expect_answer(const Body& body) {
  static const bool quiet = (set_log_level(LogLevel::error), true);
  (void)quiet;
  try {
    body();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
  }
}

}  // namespace slideway
