#include "ops/cuda_workspace.h"

#include <algorithm>
#include <bit>

namespace slideway {
namespace {

constexpr std::uint64_t kMaskedBytes = std::uint64_t(64) << 20;  // dropped-out inputs, made so many at a time

std::uint64_t cudnn_bytes(const OpsOptions& o) {
  if (o.rows == 0 || !o.library_attention) return 0;
  constexpr std::uint64_t kSlack = std::uint64_t(16) << 20;
  const std::uint64_t statistics = std::uint64_t(o.rows) * std::uint64_t(o.heads.query) * sizeof(float);
  const std::uint64_t backward = cudnn_backward_bytes(1, cudnn_size(o.rows), o.heads.query, o.heads.width);
  return statistics + std::min(backward, kMostCudnnBackward) + kSlack;
}

}  // namespace

std::int64_t cudnn_size(std::int64_t n) {
  const auto power = std::int64_t(std::bit_ceil(std::uint64_t(n)));
  return n <= power / 4 * 3 && power >= 4 ? power / 4 * 3 : power;
}

std::uint64_t cudnn_backward_bytes(std::int64_t batch, std::int64_t longest, int heads, int width) {
  const std::int64_t S = (longest + 127) / 128 * 128;
  return std::uint64_t(2 * batch * heads * S * (S + 2 * width));
}

LoraRoomSizes::LoraRoomSizes(std::int64_t T, std::int64_t C, std::int64_t N, std::int64_t S) {
  const auto up = [](std::int64_t n) { return std::uint64_t(n + 255) / 256 * 256; };
  v = up(T * 3 * S * 2);
  a = up(3 * S * C * 2);
  b = up(N * 3 * S * 2);
  sums = up(3 * S * 4 * std::max({T, C, N}));
  masked = std::min(up(T * C * 2), std::max(kMaskedBytes, up(kLoraLeastRows * C * 2)));
}

WorkspaceSizes workspace_sizes(const OpsOptions& o) {
  const auto rows = std::uint64_t(o.rows), heads = std::uint64_t(o.heads.query);
  const auto up = [](std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  WorkspaceSizes sizes{};
  sizes.products = kProductWorkspace;
  sizes.sums = kSumsBytes;
  // Starts of sequences, tiles of attention, indices of tokens: at most 24 bytes a row, and twice of all.
  sizes.host_data = (std::uint64_t(2) << 20) + up(64 * rows);
  sizes.deltas = up(heads * rows * sizeof(float));
  sizes.attention = up(cudnn_bytes(o));
  if (o.lora_rank > 0)
    sizes.lora = up(LoraRoomSizes(o.rows, o.lora_inputs, o.lora_outputs, o.lora_rank).total());
  return sizes;
}

}  // namespace slideway
