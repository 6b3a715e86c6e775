// The memory of this machine and of this process.
//
// Units    bytes
// Errors   io when /proc cannot be read
#pragma once

#include <cstdint>

namespace slideway {

// What this process could still take beside what it holds: the system's available memory, or what the cgroup's
// memory.max leaves, whichever is less.
std::uint64_t available_memory();
std::uint64_t resident_memory();       // of this process, now
std::uint64_t peak_resident_memory();  // of this process, at most so far

}  // namespace slideway
