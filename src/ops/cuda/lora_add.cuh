// What LoRA adds to bf16: sums of products over ranks, in f32, added to what is there and rounded once.
#pragma once

#include "ops/cuda/dropout.cuh"
#include "tensor/dtype.h"

namespace slideway {

constexpr int kMostAddends = 8;

// One product of a sum: a [rows, depth] · b, b [depth, columns] or turned; under a mask, if there is one.
struct Addend {
  const bf16_t *a, *b;
  std::int64_t a_stride, b_stride;
  int depth;
  DeviceMask mask;
};
struct Addends {
  Addend each[kMostAddends];
  int count;
  const std::int64_t* tokens;  // null: no masks
};

// y[t, c] += factor · Σ_addends mask · Σ_k a[t, k] b[k, c], for T rows `stride` apart and N columns; turned: b lies as
// [columns, depth]. Depths, strides and columns are multiples of eight.
void add_products(bf16_t* y, std::int64_t stride, const Addends& addends, bool turned, std::int64_t T,
                  std::int64_t N, float factor, cudaStream_t stream);

}  // namespace slideway
