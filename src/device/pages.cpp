#include "device/pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "device/device.h"

namespace slideway {
namespace {

constexpr std::size_t kPage = 4096, kHugePage = std::size_t(2) << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

void* map_pages(std::size_t bytes, const char* what) {
  const std::size_t kept = round_up(bytes, kPage) + kPage;  // with the closed page
  const bool huge = bytes >= kHugePage;
  // The system aligns to 4096; more is asked for, and what lies outside the aligned part is given back.
  const std::size_t asked = kept + (huge ? kHugePage : 0);
  void* const mapped =
      asked < bytes ? MAP_FAILED
                    : ::mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    fail(ErrorKind::out_of_memory, "cannot get ", bytes, " bytes of ", what,
         " from the system: ", std::strerror(asked < bytes ? ENOMEM : errno));
  }
  std::byte* const begin = static_cast<std::byte*>(mapped);
  std::byte* data = begin;
  if (huge) {
    data += round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage) -
            reinterpret_cast<std::uintptr_t>(begin);
    if (data != begin) ::munmap(begin, std::size_t(data - begin));
    if (data + kept != begin + asked) ::munmap(data + kept, std::size_t(begin + asked - (data + kept)));
    ::madvise(data, kept - kPage, MADV_HUGEPAGE);  // a wish: systems without huge pages refuse it
  }
  ::mprotect(data + kept - kPage, kPage, PROT_NONE);
  return data;
}

void unmap_pages(void* data, std::size_t bytes) noexcept {
  ::munmap(data, round_up(bytes, kPage) + kPage);
}

void close_pages(void* data, std::size_t bytes) noexcept {
  ::madvise(data, round_up(bytes, kPage), MADV_DONTNEED);
  ::mprotect(data, round_up(bytes, kPage), PROT_NONE);
}

Buffer allocate_host(std::size_t bytes) {
  return {map_pages(bytes, "host memory"), bytes, unmap_pages};
}

}  // namespace slideway
