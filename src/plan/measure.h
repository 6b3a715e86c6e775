// Measuring this machine: the rates that bound a training step, in some seconds.
//
// Units    bytes and operations per second
// Threads  one at a time; threads work on the host's memory
// Errors   out_of_memory, device
#pragma once

#include "core/threads.h"
#include "device/device.h"
#include "plan/machine.h"

namespace slideway {

// What the rates of MachineRates were taken from: each alone, and what the host's memory makes of all together.
struct MeasuredRates {
  MachineRates machine;      // dram: the larger of the two below
  double copy_both = 0;      // up and down together, sum
  double adamw = 0;          // AdamW in the split format by all threads, 26 bytes a parameter
  double adamw_beside = 0;   // the same beside copies both ways …
  double copies_beside = 0;  // … and these copies, sum
  double parameters_per_s() const { return adamw / 26; }
  std::string line() const;  // for people
};

// On the host device only AdamW and the products are measured.
MeasuredRates measure_machine(Device& device, Threads& threads);

}  // namespace slideway
