// Files: read by position or mapped, written so that a reader sees the old whole or the new whole.
//
// Units    bytes
// Threads  a File may be read by several threads; anything else is one at a time
// Errors   not_found, io; the message names the path and what the system said
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace slideway {

namespace fs = std::filesystem;

// A descriptor, closed when the object ends. Short reads and writes are completed or fail.
class File {
 public:
  static File open_read(const fs::path& path);
  static File create(const fs::path& path);       // truncates what is there
  static File open_append(const fs::path& path);  // creates what is not there
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  void read_at(std::uint64_t offset, std::span<std::byte> out) const;  // io when the file ends before
  void write(std::span<const std::byte> bytes);                        // at the end of what was written so far
  void write(std::string_view text);
  void sync();   // data and metadata are on the disk when it returns
  void close();  // fails loudly, unlike the destructor
  std::uint64_t bytes() const;
  const fs::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  File(int descriptor, fs::path path);
  int descriptor_ = -1;
  fs::path path_;
};

// A file mapped read-only. The pages belong to the system; drop() tells it that a range will not be read again.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  void drop(std::size_t offset, std::size_t bytes) const;
  const fs::path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  fs::path path_;
};

std::string read_text(const fs::path& path);

// path holds either its old content or all of the new one, whatever happens in between.
void write_text_atomically(const fs::path& path, std::string_view text);

// Calls fill with a temporary folder beside path, syncs every file in it, then renames it to path. An existing
// folder at path is moved aside first and removed last, so that one complete folder exists at every moment.
void write_folder_atomically(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill);

// For tests: the n-th write (from 1) of this process from now on fails with this errno; 0 switches it off.
void inject_write_fault(int nth, int error_number);

}  // namespace slideway
