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
  void write(std::span<const std::byte> bytes);  // at the end of what was written so far
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

// Replacing things whole. Each of these leaves at path the old or the new, complete, whatever happens in between: a
// kill, a full disk, a loss of power. What they write lies beside path as .tmp-<name> until it is complete and on the
// disk; a failure removes it, a kill leaves it. Folders are swapped in one step where the file system can; where it
// cannot, the old folder is called .old-<name> while the two names change, and a kill in that moment leaves the old
// and the new complete but nothing under path itself, which clean_leftovers or the next write puts right.
// One writer a path at a time. A path that is a link is followed.
void write_text_atomically(const fs::path& path, std::string_view text);
// Calls fill with an empty temporary folder and syncs all that it wrote before the names change.
void write_folder_atomically(const fs::path& path,
                             const std::function<void(const fs::path& temporary)>& fill);

// .tmp-… and .old-…: readers of a folder's entries pass over these names.
bool is_leftover(const fs::path& path);
// Removes what killed writes left in folder, and gives an .old-<name> its name back if nothing else bears it. To be
// called before reading a folder that a killed run may have written, while nobody writes in it.
void clean_leftovers(const fs::path& folder);

// For tests: the n-th write (from 1) of this process from now on fails with this errno; 0 switches it off.
void inject_write_fault(int nth, int error_number);

}  // namespace slideway
