#include <cstring>

#include "ops/cuda/cuda_ops.h"

namespace slideway {
namespace {

template <std::size_t kBytes>
struct Letter {
  alignas(16) std::byte bytes[kBytes];
};

template <std::size_t kBytes>
__global__ void write_down(std::byte* to, const __grid_constant__ Letter<kBytes> letter, int bytes) {
  for (int i = int(threadIdx.x) * 4; i < bytes; i += int(blockDim.x) * 4)
    *reinterpret_cast<unsigned*>(to + i) = *reinterpret_cast<const unsigned*>(letter.bytes + i);
}

template <std::size_t kBytes>
void send(std::byte* to, std::span<const std::byte> bytes, cudaStream_t stream) {
  Letter<kBytes> letter;
  std::memcpy(letter.bytes, bytes.data(), bytes.size());
  write_down<kBytes><<<1, 256, 0, stream>>>(to, letter, int((bytes.size() + 3) / 4 * 4));
  check_launch();
}

}  // namespace

const std::byte* HostData::put_bytes(std::span<const std::byte> bytes) {
  constexpr std::size_t kAlign = 256, kSmall = 256, kMiddle = 4000;
  constexpr std::size_t kLarge = 32000;  // parameters of a kernel are at most 32,764 bytes
  const std::size_t rounded = (bytes.size() + kAlign - 1) / kAlign * kAlign;
  CHECK(rounded <= ring_.size(), "a table of ", bytes.size(), " bytes for a ring of ", ring_.size());
  if (at_ + rounded > ring_.size()) at_ = 0;
  std::byte* const to = ring_.data() + at_;
  at_ += rounded;
  for (std::size_t i = 0; i < bytes.size(); i += kLarge) {
    const auto piece = bytes.subspan(i, std::min(kLarge, bytes.size() - i));
    if (piece.size() <= kSmall) {
      send<kSmall>(to + i, piece, stream_);
    } else if (piece.size() <= kMiddle) {
      send<kMiddle>(to + i, piece, stream_);
    } else {
      send<kLarge>(to + i, piece, stream_);
    }
  }
  return to;
}

}  // namespace slideway
