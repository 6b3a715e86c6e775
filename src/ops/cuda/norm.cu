// RMS norm over rows and over heads.
//
// A row of up to kMostInRegisters numbers, in eights, is read once and kept in registers; others are read again for every
// pass. The weights' gradients are sums over groups of rows: column_sums.h.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kMostThreads = 256;
constexpr std::int64_t kMostInRegisters = kMostThreads * 8 * 4;

// How many eights a thread keeps, and how many threads take part, for rows of D numbers.
struct RowCut {
  int vectors, threads;
};
RowCut row_cut(std::int64_t D) {
  const std::int64_t eights = pieces_of(D, 8);
  const int vectors = eights <= kMostThreads ? 1 : eights <= 2 * kMostThreads ? 2 : 4;
  return {vectors, int(pieces_of(pieces_of(eights, vectors), kWarp) * kWarp)};
}

// Calls body with the number of vectors as a constant.
template <class Body>
void with_vectors(int vectors, const Body& body) {
  if (vectors == 1) {
    body(std::integral_constant<int, 1>());
  } else if (vectors == 2) {
    body(std::integral_constant<int, 2>());
  } else {
    body(std::integral_constant<int, 4>());
  }
}

template <class A, class W, int kVectors>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_kernel(A* out, float* rstd, const A* x, const W* weight, std::int64_t D, float eps) {
  __shared__ float room[kWarp];
  const std::int64_t row = blockIdx.x * D;
  Raw8<A> v[kVectors];
  float squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
    if (i >= D) continue;
    v[k] = load_raw8(x + row + i);
    const Eight wide = v[k].wide();
#pragma unroll
    for (int j = 0; j < 8; ++j) squares = fmaf(wide[j], wide[j], squares);
  }
  const float r = 1.0f / sqrtf(block_sum(squares, room) / float(D) + eps);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
    if (i >= D) continue;
    Eight wide = v[k].wide();
    const Eight w = load8(weight + i);
#pragma unroll
    for (int j = 0; j < 8; ++j) wide[j] = wide[j] * r * w[j];
    store8(out + row + i, wide);
  }
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
}

template <class A, class W>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_any(A* out, float* rstd, const A* x, const W* weight, std::int64_t D, float eps) {
  __shared__ float room[kWarp];
  const std::int64_t row = blockIdx.x * D;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < D; i += blockDim.x) {
    const float v = load(x + row + i);
    squares = fmaf(v, v, squares);
  }
  const float r = 1.0f / sqrtf(block_sum(squares, room) / float(D) + eps);
  for (std::int64_t i = threadIdx.x; i < D; i += blockDim.x)
    store(out + row + i, load(x + row + i) * r * load(weight + i));
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
}

// With n = x · rstd and g = d_out · weight: d_x += rstd · (g − n · mean(g · n)). A block goes through a group of rows and
// sums Σ d_out · n for the weight's gradient on the way.
template <class A, class W, int kVectors>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_backward_kernel(A* d_x, float* partial, const A* d_out, const A* x, const W* weight,
                             const float* rstd, std::int64_t T, std::int64_t D, std::int64_t rows) {
  __shared__ float room[2][kWarp];
  float sums[kVectors][8] = {};
  const std::int64_t begin = blockIdx.x * rows, end = min(T, begin + rows);
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int64_t row = t * D;
    const float r = rstd[t];
    Raw8<A> vs[kVectors], ds[kVectors], old[kVectors];
    float products = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
      if (i >= D) continue;
      vs[k] = load_raw8(x + row + i);
      ds[k] = load_raw8(d_out + row + i);
      old[k] = load_raw8(d_x + row + i);
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
      if (i >= D) continue;
      const Eight v = vs[k].wide(), d = ds[k].wide(), w = load8(weight + i);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float n = v[j] * r;
        products = fmaf(d[j] * w[j], n, products);
        sums[k][j] = fmaf(d[j], n, sums[k][j]);
      }
    }
    const float mean = block_sum(products, room[t & 1]) / float(D);
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
      if (i >= D) continue;
      const Eight v = vs[k].wide(), d = ds[k].wide(), w = load8(weight + i);
      Eight to = old[k].wide();
#pragma unroll
      for (int j = 0; j < 8; ++j) to[j] += r * fmaf(v[j] * r, -mean, d[j] * w[j]);
      store8(d_x + row + i, to);
    }
  }
  if (!partial) return;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const std::int64_t i = (std::int64_t(k) * blockDim.x + threadIdx.x) * 8;
    if (i >= D) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) partial[blockIdx.x * D + i + j] = sums[k][j];
  }
}

template <class A, class W>
__global__ void __launch_bounds__(kMostThreads)
    rms_norm_backward_any(A* d_x, const A* d_out, const A* x, const W* weight, const float* rstd,
                          std::int64_t D) {
  __shared__ float room[kWarp];
  const std::int64_t row = blockIdx.x * D;
  const float r = rstd[blockIdx.x];
  float products = 0;
  for (std::int64_t i = threadIdx.x; i < D; i += blockDim.x)
    products = fmaf(load(d_out + row + i) * load(weight + i), load(x + row + i) * r, products);
  const float mean = block_sum(products, room) / float(D);
  for (std::int64_t i = threadIdx.x; i < D; i += blockDim.x) {
    const float g = load(d_out + row + i) * load(weight + i);
    store(d_x + row + i, load(d_x + row + i) + r * fmaf(load(x + row + i) * r, -mean, g));
  }
}

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

// --- heads: a team of E / 8 threads a head, or a warp where heads are not 8, 16, 32 times eight numbers -----------------

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

void CudaOps::rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor weight, float eps) {
  shapes::rms_norm(out, rstd, x, weight);
  use();
  const std::int64_t T = x.size(0), D = x.size(1);
  if (T == 0) return;
  with_types(x.dtype(), weight.dtype(), [&](auto a, auto w) {
    using A = decltype(a);
    using W = decltype(w);
    if (D <= kMostInRegisters && aligned8(D, out.data(), x.data(), weight.data())) {
      const RowCut cut = row_cut(D);
      with_vectors(cut.vectors, [&](auto vectors) {
        rms_norm_kernel<A, W, vectors()><<<unsigned(T), cut.threads, 0, handle()>>>(
            numbers<A>(out), rstd.f32(), numbers<A>(x), numbers<W>(weight), D, eps);
      });
    } else {
      rms_norm_any<<<unsigned(T), kMostThreads, 0, handle()>>>(numbers<A>(out), rstd.f32(), numbers<A>(x),
                                                               numbers<W>(weight), D, eps);
    }
    check_launch();
  });
}

void CudaOps::rms_norm_backward(Tensor d_x, Tensor d_weight, Tensor d_out, Tensor x, Tensor weight,
                                Tensor rstd) {
  shapes::rms_norm_backward(d_x, d_weight, d_out, x, weight, rstd);
  use();
  const std::int64_t T = x.size(0), D = x.size(1);
  if (T == 0) return;
  const RowGroups groups = row_groups(T, D, 16);
  with_types(x.dtype(), weight.dtype(), [&](auto a, auto w) {
    using A = decltype(a);
    using W = decltype(w);
    if (D <= kMostInRegisters && aligned8(D, d_x.data(), d_out.data(), x.data(), weight.data())) {
      const RowCut cut = row_cut(D);
      with_vectors(cut.vectors, [&](auto vectors) {
        rms_norm_backward_kernel<A, W, vectors()><<<unsigned(groups.count), cut.threads, 0, handle()>>>(
            numbers<A>(d_x), d_weight ? sums() : nullptr, numbers<A>(d_out), numbers<A>(x),
            numbers<W>(weight), rstd.f32(), T, D, groups.rows);
      });
    } else {
      if (d_weight)
        weight_groups<<<dim3(unsigned(pieces_of(D, 128)), unsigned(groups.count)), 128, 0, handle()>>>(
            sums(), numbers<A>(d_out), numbers<A>(x), rstd.f32(), T, D, D, 1, 1, groups.rows);
      rms_norm_backward_any<<<unsigned(T), kMostThreads, 0, handle()>>>(
          numbers<A>(d_x), numbers<A>(d_out), numbers<A>(x), numbers<W>(weight), rstd.f32(), D);
    }
    check_launch();
  });
  if (d_weight) add_groups(d_weight.f32(), sums(), groups.count, D, D, handle());
}

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
