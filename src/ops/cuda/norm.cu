// RMS norm over rows.
//
// A row of up to kMostInRegisters numbers, in eights, is read once and kept in registers; others are read again for every
// pass. The weights' gradients are sums over groups of rows: column_sums.h.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/norm.cuh"
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

}  // namespace slideway
