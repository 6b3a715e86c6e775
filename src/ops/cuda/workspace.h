// Workspace: the device memory of CudaOps, cut into the parts of ops/cuda_workspace.h.
#pragma once

#include <span>

#include "ops/cuda_workspace.h"

namespace slideway {

struct Workspace {
  Workspace(Device& device, const OpsOptions& options);

  Buffer memory;
  std::span<std::byte> products, sums, host_data, deltas, attention, lora;
};

}  // namespace slideway
