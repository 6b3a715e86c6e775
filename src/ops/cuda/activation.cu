// SwiGLU. With s = 1 / (1 + e^−g): silu(g) = g · s, and silu'(g) = s · (1 + g · (1 − s)).
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kThreads = 256;

__device__ float sigmoid(float g) {
  return 1.0f / (1.0f + expf(-g));
}
__device__ float swiglu_of(float g, float u) {
  return g * sigmoid(g) * u;
}
struct Pair {
  float gate, up;
};
__device__ Pair swiglu_gradient(float d, float g, float u) {
  const float s = sigmoid(g);
  return {d * u * (s * fmaf(g, 1.0f - s, 1.0f)), d * (g * s)};
}

// Column kWidth · i of row blockIdx.y, where i counts threads along the row.
template <int kWidth>
__device__ std::int64_t column() {
  return (std::int64_t(blockIdx.x) * kThreads + threadIdx.x) * kWidth;
}

template <class A, int kWidth>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(A* out, const A* gate_up, std::int64_t F) {
  const std::int64_t c = column<kWidth>(), t = blockIdx.y;
  if (c >= F) return;
  const A *const gate = gate_up + t * 2 * F + c, *const up = gate + F;
  if constexpr (kWidth == 8) {
    Eight g = load8(gate);
    const Eight u = load8(up);
#pragma unroll
    for (int i = 0; i < 8; ++i) g[i] = swiglu_of(g[i], u[i]);
    store8(out + t * F + c, g);
  } else {
    store(out + t * F + c, swiglu_of(load(gate), load(up)));
  }
}

template <class A, int kWidth>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(A* d_gate_up, const A* d_out, const A* gate_up, std::int64_t F) {
  const std::int64_t c = column<kWidth>(), t = blockIdx.y;
  if (c >= F) return;
  const std::int64_t at = t * 2 * F + c;
  if constexpr (kWidth == 8) {
    const Eight d = load8(d_out + t * F + c);
    Eight g = load8(gate_up + at), u = load8(gate_up + at + F);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const Pair pair = swiglu_gradient(d[i], g[i], u[i]);
      g[i] = pair.gate;
      u[i] = pair.up;
    }
    store8(d_gate_up + at, g);
    store8(d_gate_up + at + F, u);
  } else {
    const Pair pair = swiglu_gradient(load(d_out + t * F + c), load(gate_up + at), load(gate_up + at + F));
    store(d_gate_up + at, pair.gate);
    store(d_gate_up + at + F, pair.up);
  }
}

// Rows beyond what a grid's second axis holds are done by further launches.
template <class Launch>
void for_row_blocks(std::int64_t T, const Launch& launch) {
  constexpr std::int64_t kMost = 65535;
  for (std::int64_t t = 0; t < T; t += kMost) launch(t, unsigned(std::min(kMost, T - t)));
}

}  // namespace

void CudaOps::swiglu(Tensor out, Tensor gate_up) {
  shapes::swiglu(out, gate_up);
  use();
  const std::int64_t F = out.size(1);
  with_type(out.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_row_blocks(out.size(0), [&](std::int64_t t, unsigned rows) {
      A* const to = numbers<A>(out) + t * F;
      const A* const from = numbers<A>(gate_up) + t * 2 * F;
      if (aligned8(F, to, from)) {
        swiglu_kernel<A, 8>
            <<<dim3(unsigned(pieces_of(F / 8, kThreads)), rows), kThreads, 0, handle()>>>(to, from, F);
      } else {
        swiglu_kernel<A, 1>
            <<<dim3(unsigned(pieces_of(F, kThreads)), rows), kThreads, 0, handle()>>>(to, from, F);
      }
      check_launch();
    });
  });
}

void CudaOps::swiglu_backward(Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  shapes::swiglu_backward(d_gate_up, d_out, gate_up);
  use();
  const std::int64_t F = d_out.size(1);
  with_type(d_out.dtype(), [&](auto zero) {
    using A = decltype(zero);
    for_row_blocks(d_out.size(0), [&](std::int64_t t, unsigned rows) {
      A* const to = numbers<A>(d_gate_up) + t * 2 * F;
      const A *const d = numbers<A>(d_out) + t * F, *const from = numbers<A>(gate_up) + t * 2 * F;
      if (aligned8(F, to, d, from)) {
        swiglu_backward_kernel<A, 8>
            <<<dim3(unsigned(pieces_of(F / 8, kThreads)), rows), kThreads, 0, handle()>>>(to, d, from, F);
      } else {
        swiglu_backward_kernel<A, 1>
            <<<dim3(unsigned(pieces_of(F, kThreads)), rows), kThreads, 0, handle()>>>(to, d, from, F);
      }
      check_launch();
    });
  });
}

}  // namespace slideway
