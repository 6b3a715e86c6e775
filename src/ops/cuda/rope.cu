// Rotary positions: a block a row, which makes the row's cosines and sines once for all heads.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kThreads = 128;
constexpr int kMostHalf = 512;  // numbers of half a head, at most

struct Turn {
  float cosine, sine;
};

__device__ void turn(float& a, float& b, Turn by) {
  const float x = a;
  a = x * by.cosine - b * by.sine;
  b = b * by.cosine + x * by.sine;
}

template <class A, bool kByEight>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(A* qkv, std::int64_t row, int heads, int half, const std::int32_t* positions,
                const float* inv_freq, float factor, bool backward) {
  __shared__ Turn turns[kMostHalf];
  const auto position = float(positions[blockIdx.x]);
  for (int i = int(threadIdx.x); i < half; i += kThreads) {
    float sine, cosine;
    sincosf(position * inv_freq[i], &sine, &cosine);
    turns[i] = {cosine * factor, (backward ? -sine : sine) * factor};
  }
  __syncthreads();
  A* const at = qkv + blockIdx.x * row;
  if constexpr (kByEight) {
    const int eights = half / 8;
    for (int j = int(threadIdx.x); j < heads * eights; j += kThreads) {
      const int i = j % eights * 8;
      A *const a = at + std::int64_t(j / eights) * 2 * half + i, *const b = a + half;
      Eight u = load8(a), v = load8(b);
#pragma unroll
      for (int k = 0; k < 8; ++k) turn(u[k], v[k], turns[i + k]);
      store8(a, u);
      store8(b, v);
    }
  } else {
    for (int j = int(threadIdx.x); j < heads * half; j += kThreads) {
      const int i = j % half;
      A *const a = at + std::int64_t(j / half) * 2 * half + i, *const b = a + half;
      float u = load(a), v = load(b);
      turn(u, v, turns[i]);
      store(a, u);
      store(b, v);
    }
  }
}

}  // namespace

void CudaOps::rope(Tensor qkv, Heads heads, Tensor positions, Tensor inv_freq, float attention_factor,
                   bool backward) {
  shapes::rope(qkv, heads, positions, inv_freq);
  use();
  const std::int64_t T = qkv.size(0);
  const int half = heads.width / 2, turned = heads.query + heads.key_value;
  if (half > kMostHalf)
    fail(ErrorKind::unsupported, "rope on CUDA turns heads of at most ", 2 * kMostHalf,
         " numbers, and these have ", heads.width);
  if (T == 0) return;
  with_type(qkv.dtype(), [&](auto zero) {
    using A = decltype(zero);
    const bool by_eight = aligned8(half, qkv.data()) && heads.row() % 8 == 0;
    const auto kernel = by_eight ? rope_kernel<A, true> : rope_kernel<A, false>;
    kernel<<<unsigned(T), kThreads, 0, handle()>>>(numbers<A>(qkv), heads.row(), turned, half,
                                                   positions.i32(), inv_freq.f32(), attention_factor,
                                                   backward);
    check_launch();
  });
}

}  // namespace slideway
