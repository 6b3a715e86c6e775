#include "ops/cuda/workspace.h"

#include "ops/cuda/cudnn.h"
#include "ops/cuda/lora_products.h"
#include "ops/cuda/products.h"
#include "ops/cuda_backend.h"

namespace slideway {

WorkspaceSizes workspace_sizes(const OpsOptions& o) {
  const auto rows = std::uint64_t(o.rows), heads = std::uint64_t(o.heads.query);
  const auto up = [](std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; };
  WorkspaceSizes sizes{};
  sizes.products = kProductWorkspace;
  sizes.sums = kSumsBytes;
  // Starts of sequences, tiles of attention, indices of tokens: at most 24 bytes a row, and twice of all.
  sizes.host_data = (std::uint64_t(2) << 20) + up(64 * rows);
  sizes.deltas = up(heads * rows * sizeof(float));
  sizes.attention = up(cudnn_workspace_bytes(o));
  sizes.lora = up(lora_workspace_bytes(o));
  return sizes;
}

Workspace::Workspace(Device& device, const OpsOptions& options) {
  const WorkspaceSizes sizes = workspace_sizes(options);
  memory = device.allocate(sizes.total());
  std::size_t at = 0;
  const auto take = [&](std::span<std::byte>& part, std::uint64_t bytes) {
    part = memory.span().subspan(at, bytes);
    at += bytes;
  };
  take(products, sizes.products);
  take(sums, sizes.sums);
  take(host_data, sizes.host_data);
  take(deltas, sizes.deltas);
  take(attention, sizes.attention);
  take(lora, sizes.lora);
}

std::uint64_t cuda_ops_workspace_bytes(const OpsOptions& options) {
  return workspace_sizes(options).total();
}

}  // namespace slideway
