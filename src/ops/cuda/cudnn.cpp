#include "ops/cuda/cudnn.h"

namespace slideway {

std::unique_ptr<CudnnAttention> make_cudnn_attention(std::span<std::byte>, cudaStream_t) {
  return nullptr;
}
std::uint64_t cudnn_workspace_bytes(const OpsOptions&) {
  return 0;
}

}  // namespace slideway
