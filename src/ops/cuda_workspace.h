// The device memory that the CUDA ops hold beside their callers' tensors: sizes from OpsOptions alone, by plain arithmetic.
// Built everywhere, so that a plan for a GPU can be made where there is none.
//
// Units    bytes, unless said otherwise
// Threads  pure functions
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace slideway {

constexpr std::uint64_t kProductWorkspace = std::uint64_t(32) << 20;  // what cuBLAS itself takes on Hopper
constexpr std::uint64_t kSumsBytes = std::uint64_t(16) << 20;         // partial sums over rows
// cuDNN's deterministic backward keeps the gradients of all scores. Sequences that need more than this are left to our own
// kernels: with 32 heads of 128, those of more than 4,096 rows.
constexpr std::uint64_t kMostCudnnBackward = std::uint64_t(5) << 28;

struct WorkspaceSizes {
  std::uint64_t products;   // of cuBLASLt
  std::uint64_t sums;       // kSumsBytes
  std::uint64_t host_data;  // HostData's ring
  std::uint64_t deltas;     // [H, T] f32 of attention_backward
  std::uint64_t attention;  // of cuDNN
  std::uint64_t lora;       // LoraRoomSizes
  std::uint64_t total() const { return products + sums + host_data + deltas + attention + lora; }
};
WorkspaceSizes workspace_sizes(const OpsOptions& options);

// A plan of cuDNN's serves batches and sequences up to a size: the next power of two, or three quarters of it.
std::int64_t cudnn_size(std::int64_t n);
// What the deterministic backward takes at least: gradients of all scores, and those of keys and values for every head.
std::uint64_t cudnn_backward_bytes(std::int64_t batch, std::int64_t longest, int heads, int width);

// The parts of the room in which LoRA's products are prepared: T rows, C inputs, N outputs of the widest part, ranks S.
constexpr std::int64_t kLoraLeastRows = 64;  // fewer rows are no work for the library
struct LoraRoomSizes {
  std::uint64_t v, a, b, sums, masked;
  LoraRoomSizes(std::int64_t T, std::int64_t C, std::int64_t N, std::int64_t S);
  std::uint64_t total() const { return v + a + b + sums + masked; }
};

}  // namespace slideway
