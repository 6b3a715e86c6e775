// RMS norm over heads: a team of E / 8 threads a head, or a warp where heads are not 8, 16 or 32 times eight numbers. The
// weights' gradients are sums over groups of rows: column_sums.h.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/norm.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kHeadThreads = 256;

bool in_teams(int width) {
  return width == 64 || width == 128 || width == 256;
}

__device__ float team_sum(float x, int team) {
  for (int distance = team / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}

template <class A, class W>
__global__ void __launch_bounds__(kHeadThreads)
    head_norm_kernel(A* out, float* rstd, const A* qkv, std::int64_t T, Heads heads, const W* q_weight,
                     const W* k_weight, float eps) {
  const int team = heads.width / 8, normed = heads.query + heads.key_value;
  const std::int64_t index = (std::int64_t(blockIdx.x) * kHeadThreads + threadIdx.x) / team;
  const std::int64_t all = heads.query + 2 * heads.key_value, t = index / all;
  const int head = int(index % all), i = int(threadIdx.x) % team * 8;
  const bool there = t < T;
  const std::int64_t at = t * heads.row() + std::int64_t(head) * heads.width + i;
  Eight v = {};
  if (there) v = load8(qkv + at);
  float squares = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) squares = fmaf(v[j], v[j], squares);
  const float r = 1.0f / sqrtf(team_sum(squares, team) / float(heads.width) + eps);
  if (!there || (head >= normed && out == qkv)) return;
  if (head < normed) {
    const Eight w = load8((head < heads.query ? q_weight : k_weight) + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = v[j] * r * w[j];
    if (i == 0) rstd[t * normed + head] = r;
  }
  store8(out + at, v);
}

// A block goes through a group of rows; every thread sums the weights' gradients of its eight columns, over rows and heads
// in the order in which its team comes to them; teams are added upwards.
template <class A, class W>
__global__ void __launch_bounds__(kHeadThreads)
    head_norm_backward_kernel(A* d_qkv, float* partial, const A* qkv, const float* rstd, std::int64_t T,
                              Heads heads, const W* q_weight, const W* k_weight, std::int64_t rows) {
  __shared__ float room[kHeadThreads * 8];
  const int team = heads.width / 8, teams = kHeadThreads / team, normed = heads.query + heads.key_value;
  const int mine = int(threadIdx.x) / team, i = int(threadIdx.x) % team * 8;
  const std::int64_t begin = blockIdx.x * rows, count = (min(T, begin + rows) - begin) * normed;
  float sums[2][8] = {};
  for (std::int64_t first = 0; first < count; first += teams) {
    const std::int64_t index = first + mine, t = begin + index / normed;
    const int head = int(index % normed);
    const bool there = index < count, key = head >= heads.query;
    const std::int64_t at = t * heads.row() + std::int64_t(head) * heads.width + i;
    Eight v = {}, d = {}, w = {};
    float r = 0;
    if (there) {
      v = load8(qkv + at);
      d = load8(d_qkv + at);
      w = load8((key ? k_weight : q_weight) + i);
      r = rstd[t * normed + head];
    }
    float products = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float n = v[j] * r, sum = d[j] * n;
      products = fmaf(d[j] * w[j], n, products);
      sums[0][j] += key ? 0.0f : sum;
      sums[1][j] += key ? sum : 0.0f;
    }
    const float mean = team_sum(products, team) / float(heads.width);
    if (!there) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) d[j] = r * fmaf(v[j] * r, -mean, d[j] * w[j]);
    store8(d_qkv + at, d);
  }
  if (!partial) return;
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 8; ++j) room[mine * heads.width + i + j] = sums[which][j];
    __syncthreads();
    for (int e = int(threadIdx.x); e < heads.width; e += kHeadThreads) {
      float total = 0;
      for (int n = 0; n < teams; ++n) total += room[n * heads.width + e];
      partial[(blockIdx.x * 2 + which) * std::int64_t(heads.width) + e] = total;
    }
  }
}

constexpr int kWarpsABlock = 8;

struct HeadPlace {
  std::int64_t t, head;
  __device__ HeadPlace(std::int64_t heads) {
    const std::int64_t index = std::int64_t(blockIdx.x) * kWarpsABlock + threadIdx.x / kWarp;
    t = index / heads;
    head = index % heads;
  }
};

template <class A, class W>
__global__ void __launch_bounds__(kWarpsABlock* kWarp)
    head_norm_any(A* out, float* rstd, const A* qkv, std::int64_t T, Heads heads, const W* q_weight,
                  const W* k_weight, float eps) {
  const HeadPlace place(heads.query + 2 * heads.key_value);
  if (place.t >= T) return;
  const int lane = int(threadIdx.x) % kWarp, E = heads.width, normed = heads.query + heads.key_value;
  const std::int64_t at = place.t * heads.row() + place.head * E;
  if (place.head >= normed) {
    if (out != qkv) {
      for (int i = lane; i < E; i += kWarp) out[at + i] = qkv[at + i];
    }
    return;
  }
  const W* const weight = place.head < heads.query ? q_weight : k_weight;
  float squares = 0;
  for (int i = lane; i < E; i += kWarp) {
    const float v = load(qkv + at + i);
    squares = fmaf(v, v, squares);
  }
  const float r = 1.0f / sqrtf(warp_sum(squares) / float(E) + eps);
  for (int i = lane; i < E; i += kWarp) store(out + at + i, load(qkv + at + i) * r * load(weight + i));
  if (lane == 0) rstd[place.t * normed + place.head] = r;
}

template <class A, class W>
__global__ void __launch_bounds__(kWarpsABlock* kWarp)
    head_norm_backward_any(A* d_qkv, const A* qkv, const float* rstd, std::int64_t T, Heads heads,
                           const W* q_weight, const W* k_weight) {
  const std::int64_t normed = heads.query + heads.key_value;
  const HeadPlace place(normed);
  if (place.t >= T) return;
  const int lane = int(threadIdx.x) % kWarp, E = heads.width;
  const std::int64_t at = place.t * heads.row() + place.head * E;
  const W* const weight = place.head < heads.query ? q_weight : k_weight;
  const float r = rstd[place.t * normed + place.head];
  float products = 0;
  for (int i = lane; i < E; i += kWarp)
    products = fmaf(load(d_qkv + at + i) * load(weight + i), load(qkv + at + i) * r, products);
  const float mean = warp_sum(products) / float(E);
  for (int i = lane; i < E; i += kWarp) {
    const float g = load(d_qkv + at + i) * load(weight + i);
    store(d_qkv + at + i, r * fmaf(load(qkv + at + i) * r, -mean, g));
  }
}

}  // namespace

void CudaOps::head_norm(Tensor out, Tensor rstd, Tensor qkv, Heads heads, Tensor q_weight, Tensor k_weight,
                        float eps) {
  shapes::head_norm(out, rstd, qkv, heads, q_weight, k_weight);
  use();
  const std::int64_t T = qkv.size(0), all = heads.query + 2 * heads.key_value;
  if (T == 0) return;
  with_types(qkv.dtype(), q_weight.dtype(), [&](auto a, auto w) {
    using A = decltype(a);
    using W = decltype(w);
    const bool teams = in_teams(heads.width) &&
                       aligned8(heads.row(), out.data(), qkv.data(), q_weight.data(), k_weight.data());
    const auto kernel = teams ? head_norm_kernel<A, W> : head_norm_any<A, W>;
    const std::int64_t threads = T * all * (teams ? heads.width / 8 : kWarp);
    kernel<<<unsigned(pieces_of(threads, kHeadThreads)), kHeadThreads, 0, handle()>>>(
        numbers<A>(out), rstd.f32(), numbers<A>(qkv), T, heads, numbers<W>(q_weight), numbers<W>(k_weight),
        eps);
    check_launch();
  });
}

void CudaOps::head_norm_backward(Tensor d_qkv, Tensor d_q_weight, Tensor d_k_weight, Tensor qkv, Tensor rstd,
                                 Heads heads, Tensor q_weight, Tensor k_weight) {
  shapes::head_norm_backward(d_qkv, d_q_weight, d_k_weight, qkv, rstd, heads, q_weight, k_weight);
  use();
  const std::int64_t T = qkv.size(0), E = heads.width, normed = heads.query + heads.key_value;
  if (T == 0) return;
  const RowGroups groups = row_groups(T, 2 * E, 8);
  with_types(qkv.dtype(), q_weight.dtype(), [&](auto a, auto w) {
    using A = decltype(a);
    using W = decltype(w);
    A *const d = numbers<A>(d_qkv), *const x = numbers<A>(qkv);
    const auto add = [&](std::int64_t stride, const float* partial, Tensor to) {
      if (to) add_groups(to.f32(), partial, groups.count, stride, E, handle());
    };
    if (in_teams(heads.width) && aligned8(heads.row(), d, x, q_weight.data(), k_weight.data())) {
      head_norm_backward_kernel<<<unsigned(groups.count), kHeadThreads, 0, handle()>>>(
          d, d_q_weight || d_k_weight ? sums() : nullptr, x, rstd.f32(), T, heads, numbers<W>(q_weight),
          numbers<W>(k_weight), groups.rows);
      check_launch();
      add(2 * E, sums(), d_q_weight);
      add(2 * E, sums() + E, d_k_weight);
      return;
    }
    // The weights' gradients first: d_qkv is still the gradient of the normed heads.
    const auto add_heads = [&](Tensor d_weight, std::int64_t first, std::int64_t count) {
      if (!d_weight) return;
      weight_groups<<<dim3(unsigned(pieces_of(E, 128)), unsigned(groups.count)), 128, 0, handle()>>>(
          sums(), d + first * E, x + first * E, rstd.f32() + first, T, E, heads.row(), count, normed,
          groups.rows);
      check_launch();
      add(E, sums(), d_weight);
    };
    add_heads(d_q_weight, 0, heads.query);
    add_heads(d_k_weight, heads.query, heads.key_value);
    head_norm_backward_any<<<unsigned(pieces_of(T * normed, kWarpsABlock)), kWarpsABlock * kWarp, 0,
                             handle()>>>(d, x, rstd.f32(), T, heads, numbers<W>(q_weight),
                                         numbers<W>(k_weight));
    check_launch();
  });
}

}  // namespace slideway
