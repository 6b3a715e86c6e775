#include "core/machine.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "core/error.h"

namespace slideway {
namespace {

// "Key:   123 kB" in a file of /proc, as bytes.
std::uint64_t proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size() + 1, key + ":") != 0) continue;
    std::istringstream rest(line.substr(key.size() + 1));
    std::uint64_t kib = 0;
    if (rest >> kib) return kib * 1024;
  }
  fail(ErrorKind::io, file, " has no line '", key, "'");
}

// The number in a cgroup file; the largest one where there is no such file or no limit ("max").
std::uint64_t cgroup_value(const std::string& name) {
  std::uint64_t value = 0;
  if (std::ifstream in("/sys/fs/cgroup/" + name); in >> value) return value;
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

std::uint64_t available_memory() {
  const std::uint64_t available = proc_value("/proc/meminfo", "MemAvailable");
  const std::uint64_t limit = cgroup_value("memory.max"), used = cgroup_value("memory.current");
  if (limit == std::numeric_limits<std::uint64_t>::max()) return available;
  return std::min(available, limit > used ? limit - used : 0);
}

std::uint64_t resident_memory() {
  return proc_value("/proc/self/status", "VmRSS");
}
std::uint64_t peak_resident_memory() {
  return proc_value("/proc/self/status", "VmHWM");
}

}  // namespace slideway
