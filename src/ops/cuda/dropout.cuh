// Dropout on the device: the same bits as ops/cpu/dropout.h, which says what they are.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace slideway {

// One module's mask, as a kernel takes it. tokens: [T] on the device, null where nothing is dropped.
struct DeviceMask {
  std::uint64_t key;
  std::uint32_t threshold;
  float scale;

  // The bits of columns c, c + 16, c + 32 and c + 48 of the 64 that column is among.
  __device__ uint4 block(std::int64_t token, std::int64_t column) const {
    const auto minor = std::uint64_t(column / 64 * 16 + column % 16);
    uint4 c{std::uint32_t(minor), std::uint32_t(minor >> 32), std::uint32_t(token),
            std::uint32_t(std::uint64_t(token) >> 32)};
    std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
      const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
      c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }
  __device__ float factor(std::int64_t token, std::int64_t column) const {
    const uint4 c = block(token, column);
    const int word = int(column / 16 % 4);
    const std::uint32_t bits = word == 0 ? c.x : word == 1 ? c.y : word == 2 ? c.z : c.w;
    return bits >> 8 >= threshold ? scale : 0.0f;
  }
};

}  // namespace slideway
