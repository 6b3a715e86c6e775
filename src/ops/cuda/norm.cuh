// What the two files of norms share: the weights' gradients where columns are read one by one.
#pragma once

#include "ops/cuda/numbers.cuh"

namespace slideway {
namespace {

// partial[g, i] = Σ over the group's rows and, in each, over `heads` pieces `width` apart of d_out · x · rstd.
template <class A>
__global__ void weight_groups(float* partial, const A* d_out, const A* x, const float* rstd, std::int64_t T,
                              std::int64_t width, std::int64_t stride, std::int64_t heads,
                              std::int64_t rstd_stride, std::int64_t rows) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, begin = blockIdx.y * rows;
  if (i >= width) return;
  const std::int64_t end = min(T, begin + rows);
  float sum = 0;
  for (std::int64_t t = begin; t < end; ++t) {
#pragma unroll 4
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t at = t * stride + h * width + i;
      sum = fmaf(load(d_out + at), load(x + at) * rstd[t * rstd_stride + h], sum);
    }
  }
  partial[blockIdx.y * width + i] = sum;
}

}  // namespace
}  // namespace slideway
