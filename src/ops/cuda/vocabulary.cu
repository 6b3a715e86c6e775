// Embedding and cross entropy.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kThreads = 256;

// A row whose id is outside of the table becomes NaN: nothing can be thrown here, and no loss or answer survives it.
template <class A, class W>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(A* out, const W* table, const std::int32_t* ids, std::int64_t V, std::int64_t D) {
  const std::int64_t id = ids[blockIdx.x];
  const bool inside = 0 <= id && id < V;
  for (std::int64_t i = threadIdx.x; i < D; i += kThreads)
    store(out + blockIdx.x * D + i, inside ? load(table + id * D + i) : NAN);
}

// One thread a column, down all rows: rows of one id are added in ascending order.
template <class A>
__global__ void embed_backward_kernel(float* d_table, const A* d_out, const std::int32_t* ids, std::int64_t T,
                                      std::int64_t V, std::int64_t D) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= D) return;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::int64_t id = ids[t];
    if (0 <= id && id < V) d_table[id * D + i] += load(d_out + t * D + i);
  }
}

// --- cross entropy: a block a row ------------------------------------------------------------------------------------

constexpr int kKept = 8;  // fours that a thread keeps in registers: rows of up to 8192 are read once

__global__ void __launch_bounds__(kThreads)
    cross_entropy_tile_kernel(float2* max_sum, float* target_logit, const float* logits,
                              const std::int32_t* targets, std::int64_t n, std::int64_t tile_begin) {
  __shared__ float room[2][kWarp];
  const std::int64_t t = blockIdx.x;
  const std::int32_t target = targets[t];
  if (target < 0) return;
  const float* const z = logits + t * n;
  float top = -INFINITY, sum = 0;
  if (n % 4 == 0 && n <= kThreads * 4 * kKept && reinterpret_cast<std::uintptr_t>(logits) % 16 == 0) {
    float4 kept[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t i = (std::int64_t(k) * kThreads + threadIdx.x) * 4;
      kept[k] = i < n ? *reinterpret_cast<const float4*>(z + i)
                      : float4{-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      top = fmaxf(top, fmaxf(fmaxf(kept[k].x, kept[k].y), fmaxf(kept[k].z, kept[k].w)));
    top = block_max(top, room[0]);
#pragma unroll
    for (int k = 0; k < kKept; ++k)
      sum += expf(kept[k].x - top) + expf(kept[k].y - top) + (expf(kept[k].z - top) + expf(kept[k].w - top));
  } else {
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) top = fmaxf(top, z[i]);
    top = block_max(top, room[0]);
    for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += expf(z[i] - top);
  }
  sum = block_sum(sum, room[1]);
  if (threadIdx.x != 0) return;
  const bool first = tile_begin == 0;
  const float2 old = first ? float2{-INFINITY, 0.0f} : max_sum[t];
  const float m = fmaxf(old.x, top);
  max_sum[t] = {m, (first ? 0.0f : old.y * expf(old.x - m)) + sum * expf(top - m)};
  if (tile_begin <= target && target < tile_begin + n) target_logit[t] = z[target - tile_begin];
}

__global__ void cross_entropy_loss_kernel(float* losses, const float2* max_sum, const float* target_logit,
                                          const std::int32_t* targets, std::int64_t T) {
  const std::int64_t t = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= T) return;
  losses[t] = targets[t] < 0 ? 0.0f : max_sum[t].x + logf(max_sum[t].y) - target_logit[t];
}

template <class A, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(A* d_logits, const float* logits, const float2* max_sum,
                                  const std::int32_t* targets, std::int64_t n, std::int64_t tile_begin,
                                  float weight) {
  const std::int64_t t = blockIdx.x, target = targets[t];
  const bool trained = target >= 0;
  const float m = trained ? max_sum[t].x : 0.0f, s = trained ? max_sum[t].y : 1.0f;
  const auto gradient = [&](float z, std::int64_t i) {
    return weight * (expf(z - m) / s - (tile_begin + i == target ? 1.0f : 0.0f));
  };
  for (std::int64_t i = std::int64_t(threadIdx.x) * kWidth; i < n; i += kThreads * kWidth) {
    if constexpr (kWidth == 8) {
      Eight z = {};
      if (trained) {
        z = load8(logits + t * n + i);
#pragma unroll
        for (int k = 0; k < 8; ++k) z[k] = gradient(z[k], i + k);
      }
      store8(d_logits + t * n + i, z);
    } else {
      store(d_logits + t * n + i, trained ? gradient(logits[t * n + i], i) : 0.0f);
    }
  }
}

float2* pairs(const Tensor& max_sum) {
  return reinterpret_cast<float2*>(max_sum.f32());
}

}  // namespace

void CudaOps::embed(Tensor out, Tensor table, Tensor ids) {
  shapes::embed(out, table, ids);
  use();
  if (ids.size(0) == 0) return;
  with_types(out.dtype(), table.dtype(), [&](auto a, auto w) {
    using A = decltype(a);
    using W = decltype(w);
    embed_kernel<<<unsigned(ids.size(0)), kThreads, 0, handle()>>>(numbers<A>(out), numbers<W>(table),
                                                                   ids.i32(), table.size(0), table.size(1));
    check_launch();
  });
}

void CudaOps::embed_backward(Tensor d_table, Tensor d_out, Tensor ids) {
  shapes::embed_backward(d_table, d_out, ids);
  use();
  const std::int64_t D = d_table.size(1);
  with_type(d_out.dtype(), [&](auto zero) {
    using A = decltype(zero);
    embed_backward_kernel<<<unsigned(pieces_of(D, 64)), 64, 0, handle()>>>(
        d_table.f32(), numbers<A>(d_out), ids.i32(), ids.size(0), d_table.size(0), D);
    check_launch();
  });
}

void CudaOps::cross_entropy_tile(Tensor max_sum, Tensor target_logit, Tensor logits, Tensor targets,
                                 std::int64_t tile_begin) {
  shapes::cross_entropy_tile(max_sum, target_logit, logits, targets, tile_begin);
  use();
  if (logits.size(0) == 0) return;
  cross_entropy_tile_kernel<<<unsigned(logits.size(0)), kThreads, 0, handle()>>>(
      pairs(max_sum), target_logit.f32(), logits.f32(), targets.i32(), logits.size(1), tile_begin);
  check_launch();
}

void CudaOps::cross_entropy_loss(Tensor losses, Tensor max_sum, Tensor target_logit, Tensor targets) {
  shapes::cross_entropy_loss(losses, max_sum, target_logit, targets);
  use();
  const std::int64_t T = losses.size(0);
  if (T == 0) return;
  cross_entropy_loss_kernel<<<unsigned(pieces_of(T, kThreads)), kThreads, 0, handle()>>>(
      losses.f32(), pairs(max_sum), target_logit.f32(), targets.i32(), T);
  check_launch();
}

void CudaOps::cross_entropy_backward(Tensor d_logits, Tensor logits, Tensor max_sum, Tensor targets,
                                     std::int64_t tile_begin, float weight) {
  shapes::cross_entropy_backward(d_logits, logits, max_sum, targets, tile_begin);
  use();
  const std::int64_t T = logits.size(0), n = logits.size(1);
  if (T == 0) return;
  with_type(d_logits.dtype(), [&](auto zero) {
    using A = decltype(zero);
    const auto kernel = aligned8(n, d_logits.data(), logits.data()) ? cross_entropy_backward_kernel<A, 8>
                                                                    : cross_entropy_backward_kernel<A, 1>;
    kernel<<<unsigned(T), kThreads, 0, handle()>>>(numbers<A>(d_logits), logits.f32(), pairs(max_sum),
                                                   targets.i32(), n, tile_begin, weight);
    check_launch();
  });
}

}  // namespace slideway
