#include "ops/ops.h"

#include "ops/cuda_backend.h"
#include "ops/cuda_workspace.h"

namespace slideway {

std::unique_ptr<Ops> make_ops(Device& device, Stream& stream, Threads& threads, const OpsOptions& options) {
  if (device.kind() == DeviceKind::cuda) return make_cuda_ops(device, stream, options);
  return make_cpu_ops(stream, threads, options);
}

std::uint64_t ops_workspace_bytes(DeviceKind kind, const OpsOptions& options) {
  return kind == DeviceKind::cuda ? workspace_sizes(options).total() : 0;
}

}  // namespace slideway
