#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace slideway {
namespace {

[[noreturn]] void fail_io(const char* doing, const fs::path& path, int error) {
  const auto kind = error == ENOENT || error == ENOTDIR ? ErrorKind::not_found : ErrorKind::io;
  fail(kind, "cannot ", doing, " ", path.string(), ": ", std::strerror(error));
}

int open_or_fail(const fs::path& path, int flags, const char* doing) {
  int descriptor;
  do descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) fail_io(doing, path, errno);
  return descriptor;
}

std::atomic<int> writes_to_fault{0};
std::atomic<int> write_fault{0};

ssize_t write_some(int descriptor, const std::byte* data, std::size_t bytes) {
  if (writes_to_fault.load(std::memory_order_relaxed) > 0 && writes_to_fault.fetch_sub(1) == 1) {
    errno = write_fault.load();
    return -1;
  }
  return ::write(descriptor, data, bytes);
}

[[noreturn]] void fail_write(const fs::path& path, int descriptor, std::size_t wanted, int error) {
  struct statvfs system;
  if (error == ENOSPC && ::fstatvfs(descriptor, &system) == 0) {
    fail(ErrorKind::io, "cannot write ", path.string(), ": ", std::strerror(error), ": ", wanted,
         " bytes wanted, ", std::uint64_t(system.f_bavail) * system.f_frsize,
         " free. Free some space or choose another folder");
  }
  fail_io("write", path, error);
}

}  // namespace

File::File(int descriptor, fs::path path) : descriptor_(descriptor), path_(std::move(path)) {}

File File::open_read(const fs::path& path) {
  File file(open_or_fail(path, O_RDONLY, "open"), path);
  struct stat status;
  if (::fstat(file.descriptor_, &status) != 0) fail_io("open", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("open", path, EISDIR);
  return file;
}

File File::create(const fs::path& path) {
  return {open_or_fail(path, O_WRONLY | O_CREAT | O_TRUNC, "create"), path};
}

File File::open_append(const fs::path& path) {
  return {open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND, "open"), path};
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(descriptor_, out.data() + done, out.size() - done, off_t(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path_, errno);
    if (got == 0) {
      fail(ErrorKind::io, "cannot read ", path_.string(), ": ", out.size(), " bytes wanted at offset ",
           offset, ", but the file ends at ", offset + done);
    }
    done += std::size_t(got);
  }
}

void File::write(std::span<const std::byte> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t put = write_some(descriptor_, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(path_, descriptor_, bytes.size() - done, errno);
    done += std::size_t(put);
  }
}

void File::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void File::sync() {
  if (::fsync(descriptor_) != 0) fail_io("sync", path_, errno);
}

void File::close() {
  // On Linux the descriptor is gone even when close reports an error.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) fail_io("close", path_, errno);
}

std::uint64_t File::bytes() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) fail_io("measure", path_, errno);
  return std::uint64_t(status.st_size);
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const File file = File::open_read(path);
  bytes_ = file.bytes();
  if (bytes_ == 0) return;  // nothing to map, and mmap would refuse
  void* data = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) fail_io("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

void MappedFile::drop(std::size_t offset, std::size_t bytes) const {
  CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "drop passes the end of ", path_.string());
  // The page at the end is kept for whoever reads on from there; the one at the beginning has been read to
  // its end.
  const std::size_t page = std::size_t(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page, end = (offset + bytes) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

std::string read_text(const fs::path& path) {
  const File file = File::open_read(path);
  std::string text(file.bytes(), '\0');
  std::size_t done = 0;
  for (;;) {  // to the end that read() reports: files of /proc have no size
    if (done == text.size()) text.resize(done + 4096);
    const ssize_t got = ::read(file.descriptor(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path, errno);
    if (got == 0) break;
    done += std::size_t(got);
  }
  text.resize(done);
  return text;
}

void inject_write_fault(int nth, int error_number) {
  write_fault = error_number;
  writes_to_fault = nth;
}

}  // namespace slideway
