#include "plan/forecast.h"

#include <algorithm>

namespace slideway {
namespace {

// Bytes a parameter that the host's memory moves for the update: 12 read and 12 written of weights and moments, 2 of the
// gradient; for a piece that changes the weights only, or the moments only, 18.
constexpr double kWholeUpdate = 26, kPiece = 18;

struct Phase {
  double gpu, link, copied;  // copied: bytes of host memory
};

Phase phase_of(const PhaseWork& work, const MachineRates& machine) {
  // A device that computes on the host's own memory has no link.
  const auto over_link = [](double bytes, double rate) { return rate > 0 ? bytes / rate : 0; };
  const double up = over_link(work.up_bytes, machine.copy_up),
               down = over_link(work.down_bytes, machine.copy_down);
  return {work.flops / machine.product_flops, std::max(up, down), work.up_bytes + work.down_bytes};
}

}  // namespace

std::string name_of(StepLimit limit) {
  switch (limit) {
    case StepLimit::gpu:
      return "GPU";
    case StepLimit::link:
      return "link";
    case StepLimit::host_memory:
      break;
  }
  return "host memory";
}

StepForecast forecast_step(const StepWork& work, const MachineRates& machine) {
  const Phase forward = phase_of(work.forward, machine), backward = phase_of(work.backward, machine);
  const double s = work.one_piece;
  const double in_forward = (s * kWholeUpdate + (1 - s) * kPiece) * work.updated;
  const double in_backward = (1 - s) * kPiece * work.updated;
  StepForecast out;
  out.gpu_s = forward.gpu + backward.gpu;
  out.link_s = forward.link + backward.link;
  double dram_forward = (forward.copied + in_forward) / machine.dram;
  double dram_backward = (backward.copied + in_backward) / machine.dram;
  out.dram_s = dram_forward + dram_backward;
  const double busy_forward = std::max(forward.gpu, forward.link);
  const double busy_backward = std::max(backward.gpu, backward.link);
  // Without clipping an update may wait into the next forward, so only the sum counts.
  out.step_s = work.clips ? std::max(busy_forward, dram_forward) + std::max(busy_backward, dram_backward)
                          : std::max(busy_forward + busy_backward, out.dram_s);
  const double most = std::max({out.gpu_s, out.link_s, out.dram_s});
  out.limit = most == out.gpu_s    ? StepLimit::gpu
              : most == out.dram_s ? StepLimit::host_memory
                                   : StepLimit::link;
  return out;
}

}  // namespace slideway
