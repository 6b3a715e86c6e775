// DenseTile: one tile of a product of large matrices, out = a · b (+ out), in f32.
//
// Every number of out is one chain of fused multiply-adds over k in ascending order, begun at what out holds or at 0. So
// no bit depends on tiles, on the number of rows, on the instruction set, or on whether a sum is made in one call
// or continued by the next.
//
// Threads  pure functions of their arguments; tiles may run side by side, each with its own scratch
#pragma once

#include "ops/cpu/matrix_view.h"

namespace slideway {

struct DenseTile {
  float* out;  // [m, n], rows out_stride apart
  std::int64_t out_stride;
  MatrixView a;  // [m, k] f32 or bf16
  MatrixView b;  // [k, n] f32 or bf16
  bool accumulate;
  float* scratch;  // dense_scratch floats, aligned to 64
};

constexpr std::int64_t kDenseInner = 256;  // of k at a time, so that a strip of b stays in the L1 cache
constexpr std::int64_t kDenseStrip = 64;   // columns of b at a time, at most

static constexpr std::int64_t dense_panel_stride(std::int64_t m) {
  return m / 32 * 32 + 48;
}

static constexpr std::int64_t dense_scratch(std::int64_t m) {
  return dense_panel_stride(m) * kDenseInner + kDenseInner * kDenseStrip + m * kDenseStrip;
}

}  // namespace slideway
