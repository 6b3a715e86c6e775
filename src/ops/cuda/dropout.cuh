// Dropout on the device: the same bits as ops/cpu/dropout.h, which says what they are.
#pragma once

#include "core/random.h"
#include "ops/cpu/dropout.h"

namespace slideway {

// One module's mask, as a kernel takes it. tokens: [T] on the device, null where nothing is dropped.
struct DeviceMask {
  std::uint64_t key;
  std::uint32_t threshold;
  float scale;

  __device__ float factor(std::int64_t token, std::int64_t column) const {
    const auto minor = std::uint64_t(column / 64 * 16 + column % 16);
    std::uint32_t c0 = std::uint32_t(minor), c1 = std::uint32_t(minor >> 32), c2 = std::uint32_t(token),
                  c3 = std::uint32_t(std::uint64_t(token) >> 32);
    std::uint32_t k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
      const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
      c0 = high1 ^ c1 ^ k0;
      c1 = low1;
      c2 = high0 ^ c3 ^ k1;
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const int word = int(column / 16 % 4);
    const std::uint32_t bits = word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
    return bits >> 8 >= threshold ? scale : 0.0f;
  }
};

}  // namespace slideway
