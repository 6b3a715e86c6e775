// Small products over Lanes: out = a · b (+ out) for matrices that lie in a core's caches, the blocks of attention.
//
// Every number of out is one chain of fused multiply-adds over k in ascending order, whatever else is in the matrices.
//
// Shapes   columns of out and of b are a multiple of 16
#pragma once

#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

struct SmallProduct {
  float* out;  // [m, n], rows out_stride apart
  std::int64_t out_stride;
  const float* a;  // [m, k]: element (r, c) at a[r · a_row + c · a_column]
  std::int64_t a_row, a_column;
  const float* b;  // [k, n], rows b_stride apart
  std::int64_t b_stride;
  std::int64_t m, n, k;
  bool accumulate;
};

constexpr int kBlockRows = 6, kBlockLanes = kWideLanes ? 4 : 1;  // 24 of 32 registers hold sums, or 12 of 16

// One block of kRows rows and kCount · 16 columns, its sums in registers.
template <int kRows, int kCount>
void small_block(const SmallProduct& p, std::int64_t row, std::int64_t column) {
  Lanes sums[kRows][kCount];
  float* const out = p.out + row * p.out_stride + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) {
      sums[r][c] = p.accumulate ? load(out + r * p.out_stride + c * kLanes) : zeros();
    }
  }
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  for (std::int64_t k = 0; k < p.k; ++k, a += p.a_column, b += p.b_stride) {
    Lanes line[kCount];
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) line[c] = load(b + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Lanes factor = same(a[r * p.a_row]);
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) sums[r][c] = fma(factor, line[c], sums[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) store(out + r * p.out_stride + c * kLanes, sums[r][c]);
  }
}

// The last rows of a strip, fewer than a whole block has.
template <int kRows, int kCount>
void last_rows(const SmallProduct& p, std::int64_t row, std::int64_t column) {
  if constexpr (kRows > 0) {
    if (p.m - row == kRows) return small_block<kRows, kCount>(p, row, column);
    last_rows<kRows - 1, kCount>(p, row, column);
  }
}

// kCount · 16 columns of all rows; or, where fewer columns are left, those.
template <int kCount>
void strip(const SmallProduct& p, std::int64_t column) {
  if constexpr (kCount > 0) {
    if (p.n - column < kCount * kLanes) return strip<kCount - 1>(p, column);
    std::int64_t row = 0;
    for (; row + kBlockRows <= p.m; row += kBlockRows) small_block<kBlockRows, kCount>(p, row, column);
    last_rows<kBlockRows - 1, kCount>(p, row, column);
  }
}

void small_product(const SmallProduct& p) {
  for (std::int64_t column = 0; column < p.n; column += kBlockLanes * kLanes) strip<kBlockLanes>(p, column);
}

}  // namespace
}  // namespace slideway
