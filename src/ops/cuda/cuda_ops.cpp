#include "ops/cuda/cuda_ops.h"

#include "device/cuda/stream.h"
#include "ops/cuda/attention_tile.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda_backend.h"

namespace slideway {

CudaOps::CudaOps(Device& device, CudaStream& stream, const OpsOptions& options)
    : device_(stream.context().index()),
      stream_(stream.handle()),
      options_(options),
      workspace_(device, options),
      host_data_(workspace_.host_data, stream_),
      products_(workspace_.products),
      cudnn_(make_cudnn_attention(workspace_.attention, stream_)) {}

CudaOps::~CudaOps() = default;

// The kind of GPU: libraries choose algorithms by it.
std::string CudaOps::numeric_plan() const {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, device_));
  std::string plan = std::string("cuda ") + properties.name + ", " +
                     std::to_string(properties.multiProcessorCount) + " multiprocessors; ";
  plan += options_.row_invariant ? std::string("products in chains") : Products::library();
  const std::string cudnn = options_.library_attention ? cudnn_library() : std::string();
  plan += "; attention " + (cudnn.empty() ? cudnn : cudnn + ", else ") + "tiles of " +
          std::to_string(kForwardQueries) + ", " + std::to_string(kBackwardRows) + " and " +
          std::to_string(attention_tile_rows(padded_width(1))) + " rows";
  return plan + "; sums over rows in " + std::to_string(kSumsBytes >> 20) + " MiB; squares over " +
         std::to_string(kSquaresChunk);
}

std::unique_ptr<Ops> make_cuda_ops(Device& device, Stream& stream, const OpsOptions& options) {
  CudaStream& own = cuda_stream(stream);
  own.context().use();
  return std::make_unique<CudaOps>(device, own, options);
}

}  // namespace slideway
