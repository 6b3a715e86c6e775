// Pages: anonymous memory straight from the system, zeroed, of exactly the size asked for.
//
// Large blocks lie on huge pages where the system has them. The page behind each block is closed: what runs
// past the end is stopped there. Physical memory is taken when a page is first touched.
//
// Units    bytes
// Threads  any
// Errors   out_of_memory: how much was asked, for what, and what the system said
#pragma once

#include <cstddef>

namespace slideway {

void* map_pages(std::size_t bytes, const char* what);  // aligned to 4096, and to 2 MiB from that size on
void unmap_pages(void* data, std::size_t bytes) noexcept;
// The memory is given back, but its addresses stay closed until unmap_pages: a late use is stopped.
void close_pages(void* data, std::size_t bytes) noexcept;

}  // namespace slideway
