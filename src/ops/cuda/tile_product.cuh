// A tile of a product, summed by one block of 256 threads in f32: what stands in where no library's product fits.
//
// Every number is one chain of fused multiply-adds over ascending k, from 0: it depends on its own row and column alone.
//
//   float sums[kRows / 16][kColumns / 16];
//   tile_product<kRows, kColumns>(sums, begin, end, [&](int i, std::int64_t k) { … }, [&](std::int64_t k, int j) { … });
//
// Thread (y, x) of 16 × 16 holds rows y + 16 r and columns x + 16 c of the tile. a and b are asked for every place of the
// tile and give 0 outside of their matrices. kAlongK: neighbouring threads ask for neighbouring k (else for neighbouring
// rows or columns): whichever lie side by side in memory.
#pragma once

#include "ops/cuda/numbers.cuh"

namespace slideway {

constexpr int kTileThreads = 256;
constexpr int kTileDepth = 16;

template <int kRows, int kColumns, class A, class B>
__device__ void tile_product(float (&sums)[kRows / 16][kColumns / 16], std::int64_t begin, std::int64_t end,
                             const A& a, bool a_along_k, const B& b, bool b_along_k) {
  __shared__ float left[kTileDepth][kRows + 1], right[kTileDepth][kColumns + 1];
  const int thread = int(threadIdx.x), y = thread / 16, x = thread % 16;
  for (std::int64_t k0 = begin; k0 < end; k0 += kTileDepth) {
#pragma unroll
    for (int i = thread; i < kRows * kTileDepth; i += kTileThreads) {
      const int k = a_along_k ? i % kTileDepth : i / kRows, row = a_along_k ? i / kTileDepth : i % kRows;
      left[k][row] = k0 + k < end ? a(row, k0 + k) : 0.0f;
    }
#pragma unroll
    for (int i = thread; i < kColumns * kTileDepth; i += kTileThreads) {
      const int k = b_along_k ? i % kTileDepth : i / kColumns,
                column = b_along_k ? i / kTileDepth : i % kColumns;
      right[k][column] = k0 + k < end ? b(k0 + k, column) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileDepth; ++k) {
      float u[kRows / 16], v[kColumns / 16];
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r) u[r] = left[k][y + 16 * r];
#pragma unroll
      for (int c = 0; c < kColumns / 16; ++c) v[c] = right[k][x + 16 * c];
#pragma unroll
      for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns / 16; ++c) sums[r][c] = fmaf(u[r], v[c], sums[r][c]);
      }
    }
    __syncthreads();
  }
}

// Calls body(row, column, sum) for what this thread holds.
template <int kRows, int kColumns, class Body>
__device__ void for_tile(const float (&sums)[kRows / 16][kColumns / 16], const Body& body) {
  const int y = int(threadIdx.x) / 16, x = int(threadIdx.x) % 16;
#pragma unroll
  for (int r = 0; r < kRows / 16; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns / 16; ++c) body(y + 16 * r, x + 16 * c, sums[r][c]);
  }
}

}  // namespace slideway
