// CudaStream: a CUDA stream behind the Stream interface, and how CUDA code gets at it.
//
// A copy to or from memory that is neither the device's nor pinned is refused: CUDA would hold up the issuing thread
// until the stream comes to it, and the stream may be waiting for that thread.
#pragma once

#include <memory>
#include <string>

#include "device/cuda/context.h"

namespace slideway {

class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaContext> context, std::string name);
  ~CudaStream() override;

  void copy(void* to, const void* from, std::size_t bytes) override;
  void signal(Event& event, std::uint64_t value) override;
  void wait(Event& event, std::uint64_t value) override;
  void synchronize() override;

  cudaStream_t handle() const { return handle_; }
  CudaContext& context() const { return *context_; }

 private:
  std::shared_ptr<CudaContext> context_;
  std::string name_;
  cudaStream_t handle_ = nullptr;
};

// stream must be one of a CUDA device's make_stream.
CudaStream& cuda_stream(Stream& stream);

}  // namespace slideway
