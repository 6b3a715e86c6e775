// Forecast: how long a training step takes at least, from what it has to do and what the machine can do.
//
// A step has two phases, forward and backward. In each, the GPU computes, both directions of the link copy, and the
// host's memory serves the copies and the update; all of these run beside each other, so the slowest sets the time.
//
// With P parameters updated on the host, DRAM rate R and GPU times F and B, as docs/design.md has it:
//   no clipping   max(F + B, 32 P/R), and no less than what the link needs in each phase
//   clipping      max(F, 28 P/R) + max(B, 4 P/R): updates fall into the next forward
//   in two pieces max(F, (20 + 8s) P/R) + max(B, (22 − 18s) P/R), s: the share of P updated in one piece
//
// Units    seconds, bytes, floating-point operations
// Source   docs/design.md, "Update"
#pragma once

#include <string>

#include "plan/machine.h"

namespace slideway {

// What one phase asks of the GPU, the link, and the host's memory beside the update.
struct PhaseWork {
  double flops = 0;
  double up_bytes = 0, down_bytes = 0;
};

struct StepWork {
  double tokens = 0;
  PhaseWork forward;
  PhaseWork backward;      // with what is computed again, and the head
  double model_flops = 0;  // of both, without what is computed again
  double updated = 0;      // P: parameters that AdamW updates on the host
  bool clips = false;      // updates wait for the norm, and so for the next forward
  double one_piece = 1;    // s
};

enum class StepLimit { gpu, link, host_memory };
std::string name_of(StepLimit limit);

struct StepForecast {
  double gpu_s = 0;                  // F + B
  double link_s = 0;                 // the busier direction of each phase
  double dram_s = 0;                 // all that the host's memory moves
  double step_s = 0;                 // the bound
  StepLimit limit = StepLimit::gpu;  // what costs the most of step_s
};

StepForecast forecast_step(const StepWork& work, const MachineRates& machine);

}  // namespace slideway
