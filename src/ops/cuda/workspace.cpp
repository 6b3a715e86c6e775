#include "ops/cuda/workspace.h"

namespace slideway {

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

}  // namespace slideway
