// Random numbers by counter: a number depends on its key and place alone, never on what was drawn before it.
// So a recomputed layer, another cut into micro-batches, a resumed run and a batch of other requests all draw
// the same.
//
// Source   Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011)
// Threads  pure functions
#pragma once

#include <array>
#include <cstdint>

namespace slideway {

using PhiloxBlock = std::array<std::uint32_t, 4>;

// One block of 128 random bits for a counter under a key.
inline PhiloxBlock philox(std::uint64_t key, PhiloxBlock counter) {
  auto k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t(0xD2511F53u) * counter[0];
    const std::uint64_t p1 = std::uint64_t(0xCD9E8D57u) * counter[2];
    counter = {std::uint32_t(p1 >> 32) ^ counter[1] ^ k0, std::uint32_t(p1),
               std::uint32_t(p0 >> 32) ^ counter[3] ^ k1, std::uint32_t(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

// The same for two 64-bit coordinates, such as (stream, index / 4).
inline PhiloxBlock philox(std::uint64_t key, std::uint64_t major, std::uint64_t minor) {
  return philox(key, {std::uint32_t(minor), std::uint32_t(minor >> 32), std::uint32_t(major),
                      std::uint32_t(major >> 32)});
}

// Uniform in [0, 1): 24 bits as a float, 53 bits as a double.
inline float uniform_float(std::uint32_t bits) {
  return float(bits >> 8) * 0x1p-24f;
}
inline double uniform_double(std::uint32_t high, std::uint32_t low) {
  return double((std::uint64_t(high) << 32 | low) >> 11) * 0x1p-53;
}

}  // namespace slideway
