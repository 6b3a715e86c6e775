// Plain work on whole blocks.
#include "ops/adamw.h"
#include "ops/cuda/column_sums.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kThreads = 256;

// Calls eight(i) for every eight numbers of n, and one(i) for those that are left.
template <class EightAt, class OneAt>
__device__ void for_numbers(std::int64_t n, bool by_eight, const EightAt& eight, const OneAt& one) {
  const std::int64_t thread = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (!by_eight) {
    for (int i = 0; i < 8; ++i) {
      const std::int64_t at = (std::int64_t(blockIdx.x) * 8 + i) * kThreads + threadIdx.x;
      if (at < n) one(at);
    }
    return;
  }
  const std::int64_t at = thread * 8;
  if (at + 8 <= n) {
    eight(at);
  } else {
    for (std::int64_t i = at; i < n; ++i) one(i);
  }
}
unsigned grid_of(std::int64_t n) {
  return unsigned(pieces_of(n, 8 * kThreads));
}

template <class A>
__global__ void __launch_bounds__(kThreads) add_kernel(A* x, const A* y, std::int64_t n, bool by_eight) {
  for_numbers(
      n, by_eight,
      [&](std::int64_t i) {
        Eight a = load8(x + i);
        const Eight b = load8(y + i);
#pragma unroll
        for (int k = 0; k < 8; ++k) a[k] += b[k];
        store8(x + i, a);
      },
      [&](std::int64_t i) { store(x + i, load(x + i) + load(y + i)); });
}

// As to_bf16 of tensor/dtype.h: a NaN keeps its sign and upper bits.
__device__ bf16_t exact_bf16(float x) {
  const std::uint32_t u = __float_as_uint(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? bf16_t((u >> 16) | 0x40) : bf16_of(x);
}
__device__ void store_exact(float* p, float x) {
  *p = x;
}
__device__ void store_exact(bf16_t* p, float x) {
  *p = exact_bf16(x);
}

template <class A, class B>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(A* out, const B* x, std::int64_t n, bool by_eight) {
  for_numbers(
      n, by_eight,
      [&](std::int64_t i) {
        const Eight v = load8(x + i);
        if constexpr (sizeof(A) == 2) {
          std::uint32_t words[4];
#pragma unroll
          for (int k = 0; k < 4; ++k)
            words[k] = exact_bf16(v[2 * k]) | std::uint32_t(exact_bf16(v[2 * k + 1])) << 16;
          *reinterpret_cast<uint4*>(out + i) = {words[0], words[1], words[2], words[3]};
        } else {
          store8(out + i, v);
        }
      },
      [&](std::int64_t i) { store_exact(out + i, load(x + i)); });
}

__global__ void __launch_bounds__(kThreads)
    join_kernel(float* out, const bf16_t* hi, const std::int16_t* lo, std::int64_t n, bool by_eight) {
  const auto joined = [](std::uint32_t high, std::int16_t low) {
    return __uint_as_float((high << 16) + std::uint32_t(std::int32_t(low)));
  };
  for_numbers(
      n, by_eight,
      [&](std::int64_t i) {
        const uint4 h = *reinterpret_cast<const uint4*>(hi + i), l = *reinterpret_cast<const uint4*>(lo + i);
        const std::uint32_t high[4] = {h.x, h.y, h.z, h.w}, low[4] = {l.x, l.y, l.z, l.w};
        Eight v;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          v[2 * k] = joined(high[k] & 0xffffu, std::int16_t(low[k] & 0xffffu));
          v[2 * k + 1] = joined(high[k] >> 16, std::int16_t(low[k] >> 16));
        }
        store8(out + i, v);
      },
      [&](std::int64_t i) { out[i] = joined(hi[i], lo[i]); });
}

// Block b sums chunk b: thread i takes the eights i, i + 256, … upwards in two sums, even and odd places; then the tree.
template <class A>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(double* partial, const A* x, std::int64_t n, bool by_eight) {
  __shared__ double room[kWarp];
  const std::int64_t begin = blockIdx.x * kSquaresChunk, end = min(n, begin + kSquaresChunk);
  double even = 0, odd = 0;
#pragma unroll 4
  for (std::int64_t i = begin + threadIdx.x * 8; i < end; i += kThreads * 8) {
    Eight v = {};
    if (by_eight && i + 8 <= end) {
      v = load8(x + i);
    } else {
      for (int k = 0; k < 8; ++k) v[k] = i + k < end ? load(x + i + k) : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < 8; k += 2) {
      even = fma(double(v[k]), double(v[k]), even);
      odd = fma(double(v[k + 1]), double(v[k + 1]), odd);
    }
  }
  const double total = block_sum(even + odd, room);
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads) add_squares(double* out, const double* partial, std::int64_t n) {
  __shared__ double room[kWarp];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += partial[i];
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) *out = sum;
}

// --- AdamW: the lines of ops/cpu/adamw_scalar.cpp, operation by operation --------------------------------------------

__device__ float one_nan(float x) {
  return x != x ? __uint_as_float(0x7fc00000u) : x;
}

template <class G>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(bf16_t* hi, std::int16_t* lo, float* ms, float* vs, const G* grad, std::int64_t n,
                 AdamwStep s, bool weights, bool moments) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const float g = __fmul_rn(s.clip, load(grad + i));
  const float m = one_nan(__fmaf_rn(s.beta1, ms[i], __fmul_rn(s.one_minus_beta1, g)));
  const float v = one_nan(__fmaf_rn(s.beta2, vs[i], __fmul_rn(__fmul_rn(s.one_minus_beta2, g), g)));
  if (weights) {
    const float w = __uint_as_float((std::uint32_t(hi[i]) << 16) + std::uint32_t(std::int32_t(lo[i])));
    const float d = __fmaf_rn(__fsqrt_rn(v), s.inverse_sqrt_bc2, s.epsilon);
    const float decayed = __fmaf_rn(-s.decay, w, w);
    const std::uint32_t u = __float_as_uint(__fmaf_rn(-s.step_size, __fdiv_rn(m, d), decayed));
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t high = (u + 0x8000u) >> 16;
    hi[i] = nan ? bf16_t(0x7fc0) : bf16_t(high);
    lo[i] = nan ? std::int16_t(0) : std::int16_t(std::uint16_t(u - (high << 16)));
  }
  if (moments) {
    ms[i] = m;
    vs[i] = v;
  }
}

}  // namespace

void CudaOps::add(Tensor x, Tensor y) {
  shapes::add(x, y);
  use();
  const std::int64_t n = x.elements();
  if (n == 0) return;
  with_type(x.dtype(), [&](auto zero) {
    using A = decltype(zero);
    add_kernel<<<grid_of(n), kThreads, 0, handle()>>>(numbers<A>(x), numbers<A>(y), n,
                                                      aligned8(0, x.data(), y.data()));
    check_launch();
  });
}

void CudaOps::fill_zero(Tensor x) {
  shapes::fill_zero(x);
  use();
  CUDA_CHECK(cudaMemsetAsync(x.data(), 0, x.bytes(), handle()));
}

void CudaOps::convert(Tensor out, Tensor x) {
  shapes::convert(out, x);
  use();
  const std::int64_t n = x.elements();
  if (n == 0) return;
  with_types(out.dtype(), x.dtype(), [&](auto a, auto b) {
    using A = decltype(a);
    using B = decltype(b);
    convert_kernel<<<grid_of(n), kThreads, 0, handle()>>>(numbers<A>(out), numbers<B>(x), n,
                                                          aligned8(0, out.data(), x.data()));
    check_launch();
  });
}

void CudaOps::join(Tensor out, Tensor hi, Tensor lo) {
  shapes::join(out, hi, lo);
  use();
  const std::int64_t n = out.elements();
  if (n == 0) return;
  join_kernel<<<grid_of(n), kThreads, 0, handle()>>>(out.f32(), hi.bf16(), numbers<std::int16_t>(lo), n,
                                                     aligned8(0, out.data(), hi.data(), lo.data()));
  check_launch();
}

void CudaOps::sum_of_squares(Tensor out, Tensor x) {
  shapes::sum_of_squares(out, x);
  use();
  const std::int64_t n = x.elements(), chunks = pieces_of(n, kSquaresChunk);
  CHECK(chunks * sizeof(double) <= kSumsBytes);
  auto* const partial = reinterpret_cast<double*>(workspace_.sums.data());
  if (chunks > 0) {
    with_type(x.dtype(), [&](auto zero) {
      using A = decltype(zero);
      squares_kernel<<<unsigned(chunks), kThreads, 0, handle()>>>(partial, numbers<A>(x), n,
                                                                  aligned8(0, x.data()));
      check_launch();
    });
  }
  add_squares<<<1, kThreads, 0, handle()>>>(out.f64(), partial, chunks);
  check_launch();
}

void CudaOps::adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) {
  use();
  if (range.n == 0) return;
  with_type(range.grad_type, [&](auto zero) {
    using G = decltype(zero);
    adamw_kernel<<<unsigned(pieces_of(range.n, kThreads)), kThreads, 0, handle()>>>(
        range.hi, range.lo, range.m, range.v, static_cast<const G*>(range.grad), range.n, step,
        piece != AdamwPiece::moments, piece != AdamwPiece::weights);
    check_launch();
  });
}

}  // namespace slideway
