// Replacing files and folders whole. The order of system calls is the point here; see core/file.h for the
// promise.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace slideway {
namespace {

constexpr std::string_view kTemporary = ".tmp-", kAside = ".old-";

// Where the bytes go: a link is followed, so that a folder linked to another disk stays there.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path) : fs::absolute(path);
  target = target.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "out/" is "out"
  return target;
}

fs::path sibling(const fs::path& path, std::string_view prefix) {
  return path.parent_path() / (std::string(prefix) + path.filename().string());
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail(ErrorKind::io, "cannot open folder ", folder.string(), ": ", std::strerror(errno));
  const int result = ::fsync(descriptor), error = errno;
  ::close(descriptor);
  // Some network file systems cannot sync a folder and say so.
  if (result != 0 && error != EINVAL && error != ENOTSUP) {
    fail(ErrorKind::io, "cannot sync folder ", folder.string(), ": ", std::strerror(error));
  }
}

void sync_tree(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) sync_tree(entry.path());
    if (entry.is_regular_file()) File::open_read(entry.path()).sync();
  }
  sync_folder(folder);
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail(ErrorKind::io, "cannot rename ", from.string(), " to ", to.string(), ": ", std::strerror(errno));
  }
}

// Swaps two names in one indivisible step; false where the file system cannot.
bool try_exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Puts right what a killed replacement of this one path left.
void settle(const fs::path& path) {
  const fs::path aside = sibling(path, kAside);
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(aside, ignored)) rename_or_fail(aside, path);
  remove_quietly(aside);
  remove_quietly(sibling(path, kTemporary));
}

template <class Body>
void with_temporary(const fs::path& temporary, const Body& body) try {
  body();
} catch (const fs::filesystem_error& error) {
  remove_quietly(temporary);
  fail(ErrorKind::io, error.what());
} catch (...) {
  remove_quietly(temporary);
  throw;
}

}  // namespace

bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kTemporary) || name.starts_with(kAside);
}

void clean_leftovers(const fs::path& folder) {
  std::vector<fs::path> targets;  // listed first: settling changes the folder
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_leftover(entry.path())) targets.push_back(folder / name.substr(kTemporary.size()));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(ErrorKind::io, "cannot list ", folder.string(), ": ", error.message());
  }
  for (const fs::path& target : targets) settle(target);
}

void write_text_atomically(const fs::path& path, std::string_view text) {
  const fs::path target = resolved(path), temporary = sibling(target, kTemporary);
  with_temporary(temporary, [&] {
    File file = File::create(temporary);
    file.write(text);
    file.sync();
    file.close();
    rename_or_fail(temporary, target);
    sync_folder(target.parent_path());
  });
}

void write_folder_atomically(const fs::path& path,
                             const std::function<void(const fs::path& temporary)>& fill) {
  const fs::path target = resolved(path), temporary = sibling(target, kTemporary);
  settle(target);
  with_temporary(temporary, [&] {
    fs::create_directories(temporary);
    fill(temporary);
    sync_tree(temporary);
    if (!fs::exists(target)) {
      rename_or_fail(temporary, target);
    } else if (!try_exchange(temporary, target)) {
      rename_or_fail(target, sibling(target, kAside));
      rename_or_fail(temporary, target);
    }
    sync_folder(target.parent_path());
  });
  // Only now, with the new folder safely under its name, may the old one go.
  remove_quietly(sibling(target, kAside));
  remove_quietly(temporary);
}

}  // namespace slideway
