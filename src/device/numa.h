// NUMA: which processors and which memory lie next to a device.
//
// Units    nodes and processors by the system's numbers; node −1: not known, and then nothing is done
// Threads  any
// Errors   none: placement is a wish
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace slideway {

// The node of the PCI device "0000:17:00.0", as the system says below sys.
int numa_node_of_pci(const std::string& bus_id, const std::filesystem::path& sys = "/sys");
std::vector<int> processors_of_node(int node, const std::filesystem::path& sys = "/sys");
// The calling thread, and threads that it starts, run on those of these processors that it may use.
void bind_thread(const std::vector<int>& processors);
// Pages of this memory that are not yet there come from the node while it has some.
void prefer_node(void* data, std::size_t bytes, int node);

}  // namespace slideway
