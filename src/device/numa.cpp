#include "device/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>

namespace slideway {

int numa_node_of_pci(const std::string& bus_id, const std::filesystem::path& sys) {
  std::string name = bus_id;  // the system writes it in small letters
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  std::ifstream in(sys / "bus/pci/devices" / name / "numa_node");
  int node = -1;
  return in >> node ? node : -1;
}

std::vector<int> processors_of_node(int node, const std::filesystem::path& sys) {
  std::vector<int> processors;
  std::ifstream in(sys / "devices/system/node" / ("node" + std::to_string(node)) / "cpulist");  // "0-7,16-23"
  for (int first = 0; in >> first;) {
    int last = first;
    if (in.peek() == '-') in.ignore() >> last;
    for (int i = first; i <= last; ++i) processors.push_back(i);
    if (in.peek() == ',') in.ignore();
  }
  return processors;
}

void bind_thread(const std::vector<int>& processors) {
  cpu_set_t allowed, wanted;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&wanted);
  for (const int i : processors) {
    if (i >= 0 && i < CPU_SETSIZE && CPU_ISSET(i, &allowed)) CPU_SET(i, &wanted);
  }
  if (CPU_COUNT(&wanted) > 0) sched_setaffinity(0, sizeof wanted, &wanted);
}

void prefer_node(void* data, std::size_t bytes, int node) {
  std::array<unsigned long, 16> mask{};
  constexpr int kBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= int(mask.size()) * kBits) return;
  mask[std::size_t(node / kBits)] = 1ul << (node % kBits);
  ::syscall(SYS_mbind, data, bytes, MPOL_PREFERRED, mask.data(), mask.size() * kBits, 0);
}

}  // namespace slideway
