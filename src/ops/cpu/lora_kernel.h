// What LoRA's sums need besides products: dropout's factors, and adding a small f32 patch to a larger matrix.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/lane_loops.h"

namespace slideway {
namespace {

// The words of sixteen Philox blocks (core/random.h), which differ in the lowest word of their counters only.
struct SixteenBlocks {
  std::uint32_t word[4][kLanes];
};

// 64-bit products of all lanes, as low and high halves.
LANES void multiply(std::uint32_t factor, const std::uint32_t* x, std::uint32_t* low, std::uint32_t* high) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    const std::uint64_t product = std::uint64_t(factor) * x[i];
    low[i] = std::uint32_t(product);
    high[i] = std::uint32_t(product >> 32);
  }
}

LANES void philox_blocks(SixteenBlocks& b, std::uint64_t key, std::uint64_t major,
                         std::uint32_t first_minor) {
  for (int i = 0; i < kLanes; ++i) {
    b.word[0][i] = first_minor + std::uint32_t(i);
    b.word[1][i] = 0;
    b.word[2][i] = std::uint32_t(major);
    b.word[3][i] = std::uint32_t(major >> 32);
  }
  auto k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint32_t low0[kLanes], high0[kLanes], low1[kLanes], high1[kLanes];
    multiply(0xD2511F53u, b.word[0], low0, high0);
    multiply(0xCD9E8D57u, b.word[2], low1, high1);
    for (int i = 0; i < kLanes; ++i) {
      b.word[0][i] = high1[i] ^ b.word[1][i] ^ k0;
      b.word[1][i] = low1[i];
      b.word[2][i] = high0[i] ^ b.word[3][i] ^ k1;
      b.word[3][i] = low0[i];
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

void dropout_factors(const DropoutFactors& d) {
  for (std::int64_t t = 0; t < d.rows; ++t) {
    for (std::int64_t c = 0; c < d.columns; c += 64) {
      SixteenBlocks b;
      philox_blocks(b, d.key, std::uint64_t(d.tokens[t]), std::uint32_t((d.first_column + c) / 64 * 16));
      float* const out = d.out + t * d.out_stride + c;
      for (int w = 0; w < 4; ++w) {
        for (int i = 0; i < kLanes; ++i) out[w * kLanes + i] = b.word[w][i] >> 8 >= d.threshold ? d.scale : 0;
      }
    }
  }
}

template <class T>
void scale_patch_of(const Patch& x, float* factors, std::int64_t stride) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const T* const from = static_cast<const T*>(x.data) + r * x.stride;
    float* const to = factors + r * stride;
    for_lanes(x.columns, [&](std::int64_t c, auto part) {
      store(to + c, load(from + c, part) * load(to + c, part), part);
    });
  }
}

template <class T>
void add_patch_of(const Patch& to, const float* from, const float* factors, std::int64_t stride,
                  float scale) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    T* const line = static_cast<T*>(to.data) + r * to.stride;
    for_lanes(to.columns, [&](std::int64_t c, auto part) {
      Lanes value = load(from + r * stride + c, part);
      if (factors) value = value * load(factors + r * stride + c, part);
      store(line + c, fma(same(scale), value, load(line + c, part)), part);
    });
  }
}

void scale_patch(const Patch& x, float* factors, std::int64_t stride) {
  x.type == DType::f32 ? scale_patch_of<float>(x, factors, stride)
                       : scale_patch_of<std::uint16_t>(x, factors, stride);
}

void add_patch(const Patch& to, const float* from, const float* factors, std::int64_t stride, float scale) {
  to.type == DType::f32 ? add_patch_of<float>(to, from, factors, stride, scale)
                        : add_patch_of<std::uint16_t>(to, from, factors, stride, scale);
}

}  // namespace
}  // namespace slideway
