// Workspace: the device memory that CudaOps holds beside its callers' tensors, cut into parts of fixed sizes.
//
// Sizes follow from OpsOptions alone, so a plan counts them before anything runs.
//
// Units    bytes
#pragma once

#include <cstdint>

#include "device/device.h"
#include "ops/ops.h"

namespace slideway {

constexpr std::size_t kSumsBytes = std::size_t(16) << 20;  // partial sums over rows; part of the numeric plan

struct WorkspaceSizes {
  std::uint64_t products;   // of cuBLASLt
  std::uint64_t sums;       // kSumsBytes
  std::uint64_t host_data;  // HostData's ring
  std::uint64_t deltas;     // [H, T] f32 of attention_backward
  std::uint64_t attention;  // of cuDNN
  std::uint64_t lora;       // bf16 halves of v, A and B, and dropped-out inputs
  std::uint64_t total() const { return products + sums + host_data + deltas + attention + lora; }
};
WorkspaceSizes workspace_sizes(const OpsOptions& options);

struct Workspace {
  explicit Workspace(Device& device, const OpsOptions& options);

  Buffer memory;
  std::span<std::byte> products, sums, host_data, deltas, attention, lora;
};

}  // namespace slideway
