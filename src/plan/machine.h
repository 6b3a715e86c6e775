// MachineRates: what a machine can do, in the few numbers that a step's time follows from.
//
// Units    bytes, bytes per second, floating-point operations per second
// Source   presets: the vendors' dense BF16 rates times the share that large products reach (0.9 on cards with fewer
//          tensor units per byte, 0.75 on the large ones; 0.75 of an H200's was measured), one direction of the card's
//          PCIe link, and memory of a typical host. Whoever knows better numbers gives them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace slideway {

struct MachineRates {
  std::string name;
  std::uint64_t gpu_bytes = 0;
  double product_flops = 0;  // of large BF16 products
  double copy_up = 0;        // host to device, pinned; 0: there is no link to copy over
  double copy_down = 0;      // device to host
  double dram = 0;           // the host's memory, read and written by processors and copies together
};

std::span<const MachineRates> known_machines();
std::string known_machine_names();  // for people
// Errors: not_found, with the known names. Case and the vendor's words do not matter: "RTX 4090", "rtx4090", "4090".
const MachineRates& machine_named(const std::string& name);

}  // namespace slideway
