// Linear layers: cuBLASLt's products; ours where types are mixed, a row's bits must not depend on the other rows, or the
// library declines.
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/tile_product.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

struct Strides {
  std::int64_t row, column;
};
Strides strides(const ProductMatrix& m) {
  return m.turned ? Strides{1, m.stride} : Strides{m.stride, 1};
}

constexpr int kDense = 64;

template <class A, class B, class Out>
__global__ void __launch_bounds__(kTileThreads)
    dense_kernel(Out* out, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t out_stride,
                 const A* a, Strides a_at, const B* b, Strides b_at, float alpha, bool accumulate,
                 const float* bias_f32, const bf16_t* bias_bf16) {
  const std::int64_t row0 = std::int64_t(blockIdx.x) * kDense, column0 = std::int64_t(blockIdx.y) * kDense;
  float sums[kDense / 16][kDense / 16] = {};
  tile_product<kDense, kDense>(
      sums, 0, k,
      [&](int i, std::int64_t l) {
        return row0 + i < m ? load(a + (row0 + i) * a_at.row + l * a_at.column) : 0.0f;
      },
      a_at.column == 1,
      [&](std::int64_t l, int j) {
        return column0 + j < n ? load(b + l * b_at.row + (column0 + j) * b_at.column) : 0.0f;
      },
      b_at.row == 1);
  for_tile<kDense, kDense>(sums, [&](int i, int j, float sum) {
    if (row0 + i >= m || column0 + j >= n) return;
    Out* const to = out + (row0 + i) * out_stride + column0 + j;
    float y = alpha * sum;
    if (bias_f32) y += bias_f32[column0 + j];
    if (bias_bf16) y += load(bias_bf16 + column0 + j);
    store(to, accumulate ? load(to) + y : y);
  });
}

void dense(const Product& p, const Tensor& bias, cudaStream_t stream) {
  with_types(p.a.type, p.b.type, [&](auto first, auto second) {
    with_type(p.out_type, [&](auto third) {
      using A = decltype(first);
      using B = decltype(second);
      using Out = decltype(third);
      const dim3 grid(unsigned(pieces_of(p.m, kDense)), unsigned(pieces_of(p.n, kDense)));
      const bool wide = bias && bias.dtype() == DType::f32;
      dense_kernel<<<grid, kTileThreads, 0, stream>>>(
          static_cast<Out*>(p.out), p.m, p.n, p.k, p.out_stride, static_cast<const A*>(p.a.data),
          strides(p.a), static_cast<const B*>(p.b.data), strides(p.b), p.alpha, p.accumulate,
          wide ? bias.f32() : nullptr, bias && !wide ? bias.bf16() : nullptr);
      check_launch();
    });
  });
}

ProductMatrix matrix(const Tensor& x, bool turned = false) {
  return {x.data(), x.dtype(), x.size(1), turned};
}

// --- sums over rows --------------------------------------------------------------------------------------------------

constexpr int kSumColumns = 32;

__global__ void add_groups_kernel(float* out, const float* partial, std::int64_t groups, std::int64_t stride,
                                  std::int64_t N) {
  __shared__ float lanes[kSumLanes][kSumColumns];
  const int column = int(threadIdx.x), lane = int(threadIdx.y);
  const std::int64_t n = std::int64_t(blockIdx.x) * kSumColumns + column;
  float sum = 0;
  if (n < N) {
#pragma unroll 4
    for (std::int64_t g = lane; g < groups; g += kSumLanes) sum += partial[g * stride + n];
  }
  lanes[lane][column] = sum;
  __syncthreads();
  if (lane > 0 || n >= N) return;
  float total = 0;
  for (int i = 0; i < kSumLanes; ++i) total += lanes[i][column];
  out[n] += total;
}

template <class A>
__global__ void bias_groups(float* partial, const A* d_out, std::int64_t T, std::int64_t N,
                            std::int64_t rows) {
  const std::int64_t n = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, begin = blockIdx.y * rows;
  if (n >= N) return;
  const std::int64_t end = min(T, begin + rows);
  float sum = 0;
#pragma unroll 8
  for (std::int64_t t = begin; t < end; ++t) sum += load(d_out + t * N + n);
  partial[blockIdx.y * N + n] = sum;
}

}  // namespace

void add_groups(float* out, const float* partial, std::int64_t groups, std::int64_t stride, std::int64_t N,
                cudaStream_t stream) {
  add_groups_kernel<<<unsigned(pieces_of(N, kSumColumns)), dim3(kSumColumns, kSumLanes), 0, stream>>>(
      out, partial, groups, stride, N);
  check_launch();
}

void CudaOps::linear(Tensor out, Tensor x, Tensor w, Tensor bias) {
  shapes::linear(out, x, w, bias);
  use();
  if (out.elements() == 0) return;
  const Product p{.m = x.size(0),
                  .n = w.size(0),
                  .k = x.size(1),
                  .out = out.data(),
                  .out_type = out.dtype(),
                  .out_stride = w.size(0),
                  .a = matrix(x),
                  .b = matrix(w, true),
                  .bias = bias.data()};
  const bool library =
      !options_.row_invariant && x.dtype() == w.dtype() && (!bias || bias.dtype() == out.dtype());
  if (!library || !products_.run(p, handle())) dense(p, bias, handle());
}

void CudaOps::linear_backward_input(Tensor d_x, Tensor d_out, Tensor w, bool accumulate) {
  shapes::linear_backward_input(d_x, d_out, w, accumulate);
  use();
  if (d_x.elements() == 0) return;
  const Product p{.m = d_out.size(0),
                  .n = w.size(1),
                  .k = w.size(0),
                  .out = d_x.data(),
                  .out_type = d_x.dtype(),
                  .out_stride = w.size(1),
                  .a = matrix(d_out),
                  .b = matrix(w),
                  .accumulate = accumulate};
  if (d_out.dtype() != w.dtype() || !products_.run(p, handle())) dense(p, {}, handle());
}

void CudaOps::linear_backward_weight(Tensor d_w, Tensor d_bias, Tensor d_out, Tensor x) {
  shapes::linear_backward_weight(d_w, d_bias, d_out, x);
  use();
  const std::int64_t T = x.size(0), N = d_out.size(1), C = x.size(1);
  if (T == 0) return;
  const Product p{.m = N,
                  .n = C,
                  .k = T,
                  .out = d_w.data(),
                  .out_type = DType::f32,
                  .out_stride = C,
                  .a = matrix(d_out, true),
                  .b = matrix(x),
                  .accumulate = true};
  if (!products_.run(p, handle())) dense(p, {}, handle());
  if (!d_bias) return;
  const RowGroups groups = row_groups(T, N, 64);
  with_type(d_out.dtype(), [&](auto zero) {
    using A = decltype(zero);
    const dim3 grid(unsigned(pieces_of(N, 256)), unsigned(groups.count));
    bias_groups<<<grid, 256, 0, handle()>>>(sums(), numbers<A>(d_out), T, N, groups.rows);
    check_launch();
  });
  add_groups(d_bias.f32(), sums(), groups.count, N, N, handle());
}

}  // namespace slideway
