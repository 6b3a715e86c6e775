// Guarded: numbers for kernels that are called below Ops, at a level or on a number of threads of the test's choice.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/cpu/cpu_level.h"
#include "tensor/tensor.h"

namespace slideway {

// Numbers of either type, with numbers around them that must not change.
struct Guarded {
  static constexpr std::int64_t kGuard = 67;
  DType type;
  std::int64_t count;
  std::vector<float> f32;
  std::vector<bf16_t> bf16;

  Guarded(DType t, std::int64_t n)
      : type(t), count(n), f32(std::size_t(n + 2 * kGuard), 3e33f), bf16(f32.size(), 0x7a7a) {}
  Guarded(DType t, std::int64_t n, unsigned seed) : Guarded(t, n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < n; ++i) set(i, normal(random));
  }
  void set(std::int64_t i, float value) {
    bf16[std::size_t(kGuard + i)] = to_bf16(value);
    f32[std::size_t(kGuard + i)] = type == DType::f32 ? value : to_float(to_bf16(value));
  }
  void copy(std::int64_t i, const Guarded& other, std::int64_t j) {
    f32[std::size_t(kGuard + i)] = other.f32[std::size_t(kGuard + j)];
    bf16[std::size_t(kGuard + i)] = other.bf16[std::size_t(kGuard + j)];
  }
  void* data() {
    return type == DType::f32 ? static_cast<void*>(&f32[kGuard]) : static_cast<void*>(&bf16[kGuard]);
  }
  Tensor tensor(std::initializer_list<std::int64_t> shape) { return Tensor(data(), type, shape); }
  double at(std::int64_t i) const {
    const auto k = std::size_t(kGuard + i);
    return type == DType::f32 ? double(f32[k]) : double(to_float(bf16[k]));
  }
  bool guarded() const {
    for (std::size_t i = 0; i < f32.size(); ++i) {
      const bool outside = std::int64_t(i) < kGuard || std::int64_t(i) >= kGuard + count;
      if (outside && (f32[i] != 3e33f || bf16[i] != 0x7a7a)) return false;
    }
    return true;
  }
  bool same_row(std::int64_t row, const Guarded& other, std::int64_t other_row, std::int64_t width) const {
    for (std::int64_t i = 0; i < width; ++i) {
      const auto a = std::size_t(kGuard + row * width + i), b = std::size_t(kGuard + other_row * width + i);
      if (type == DType::f32 ? std::memcmp(&f32[a], &other.f32[b], 4) != 0 : bf16[a] != other.bf16[b])
        return false;
    }
    return true;
  }
};

// The levels that kernels over lanes have.
inline std::vector<CpuLevel> vector_levels() {
  std::vector<CpuLevel> levels = cpu_levels();
  levels.erase(levels.begin());
  return levels;
}

}  // namespace slideway
