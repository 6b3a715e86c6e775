// What a bench measures with: the best of several runs, and the machine's own rates in the same run.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/threads.h"
#include "device/device.h"

namespace slideway::bench {

// Seconds of the fastest of several runs: neighbours on the machine only ever slow one down.
template <class Run>
double best_seconds(const Run& run, double budget_seconds = 1.0, int at_least = 3) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](auto from) { return std::chrono::duration<double>(Clock::now() - from).count(); };
  double best = 1e30;
  const auto start = Clock::now();
  for (int i = 0; i < at_least || seconds(start) < budget_seconds; ++i) {
    const auto begin = Clock::now();
    run();
    best = std::min(best, seconds(begin));
  }
  return best;
}

// Numbers where a run would have them: in a device's buffer.
template <class T>
struct Numbers {
  Buffer buffer;
  T* data;
  Numbers(Device& device, std::int64_t n, T value)
      : buffer(device.allocate(std::size_t(n) * sizeof(T))), data(reinterpret_cast<T*>(buffer.data())) {
    std::fill_n(data, n, value);
  }
};

inline constexpr std::int64_t kPiece = 1 << 20;

// Bytes a second of reading this memory once, by all threads.
inline double read_rate(Threads& threads, const void* data, std::size_t bytes) {
  std::vector<std::uint64_t> seen(bytes / kPiece);
  const auto pieces = std::int64_t(bytes) / kPiece;
  const double time = best_seconds([&] {
    threads.for_each(pieces, [&](std::int64_t i) {
      using Words = std::uint64_t __attribute__((vector_size(32)));
      const auto* words = reinterpret_cast<const Words*>(static_cast<const std::byte*>(data) + i * kPiece);
      Words a{}, b{}, c{}, d{};
      for (std::int64_t k = 0; k < kPiece / 32; k += 4)
        a += words[k], b += words[k + 1], c += words[k + 2], d += words[k + 3];
      a += b + c + d;
      seen[std::size_t(i)] = a[0] ^ a[1] ^ a[2] ^ a[3];
    });
  });
  return double(pieces * kPiece) / time;
}

// Bytes a second (read and written) of copying one half of this memory over the other, by all threads: with memcpy or with
// stores past the cache, whichever is faster. (memcpy reads what it overwrites, which nobody counts.)
inline double copy_rate(Threads& threads, void* data, std::size_t bytes) {
  const auto pieces = std::int64_t(bytes) / 2 / kPiece;
  auto* const to = static_cast<std::byte*>(data);
  const std::byte* const from = to + pieces * kPiece;
  const double cached = best_seconds([&] {
    threads.for_each(pieces,
                     [&](std::int64_t i) { std::memcpy(to + i * kPiece, from + i * kPiece, kPiece); });
  });
  const double streamed = best_seconds([&] {
    threads.for_each(pieces, [&](std::int64_t i) {
      const auto* const source = reinterpret_cast<const __m256i*>(from + i * kPiece);
      auto* const target = reinterpret_cast<__m256i*>(to + i * kPiece);
      for (std::int64_t k = 0; k < kPiece / 32; ++k) _mm256_stream_si256(target + k, source[k]);
    });
  });
  return 2 * double(pieces * kPiece) / std::min(cached, streamed);
}

}  // namespace slideway::bench
