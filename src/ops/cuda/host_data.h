// HostData: small tables of the host's, on the device for the kernels of one call.
//
// A table travels in the parameters of kernels that write it down: the caller's memory is free at once, nothing is
// pinned, and the order of the stream keeps a ring of device memory from being overwritten too early.
//
// Errors   internal for a table larger than the ring
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

namespace slideway {

class HostData {
 public:
  HostData(std::span<std::byte> ring, cudaStream_t stream) : ring_(ring), stream_(stream) {}

  // On the device until as many bytes as the ring has have been put after it. All tables of one call together are
  // at most half of the ring.
  template <class T>
  const T* put(std::span<const T> table) {
    return reinterpret_cast<const T*>(put_bytes(std::as_bytes(table)));
  }

 private:
  const std::byte* put_bytes(std::span<const std::byte> bytes);

  std::span<std::byte> ring_;
  cudaStream_t stream_;
  std::size_t at_ = 0;
};

}  // namespace slideway
