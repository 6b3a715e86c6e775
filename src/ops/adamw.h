// AdamW on the host, over one contiguous range of parameters in the split format.
//
//   g  = clip · grad
//   m ← β₁ m + (1−β₁) g          v ← β₂ v + (1−β₂) g²
//   w ← w − lr·( m / (1−β₁ᵗ) / (sqrt(v / (1−β₂ᵗ)) + ε) + λ w )       (decoupled decay, Loshchilov & Hutter 2019)
//
// One explicit order of fused multiply-adds, IEEE square root and division, denormals kept, every NaN written as
// 0x7fc00000: the same bits on scalar, AVX2, AVX-512 and CUDA, in one piece and in two, at any cut of the range. The
// order is written out in docs/numerics.md and in ops/cpu/adamw_scalar.cpp, which is the specification.
//
// Threads  ranges that do not overlap may be updated side by side
#pragma once

#include <cstdint>

#include "core/threads.h"
#include "ops/cpu/cpu_level.h"
#include "tensor/tensor.h"

namespace slideway {

struct AdamwOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

// The constants of one step; computed once in f64 by adamw_step so that every backend receives the same bits.
struct AdamwStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  float step_size;         // lr / (1 − β₁ᵗ)
  float inverse_sqrt_bc2;  // 1 / sqrt(1 − β₂ᵗ)
  float decay;             // lr · λ; 0 for norms and biases
  float clip;              // factor on the gradient; 1 without clipping
};

AdamwStep adamw_step(const AdamwOptions& options, double lr, double weight_decay, double clip,
                     std::int64_t t);

// A range of n parameters. grad is bf16 or f32.
struct AdamwRange {
  bf16_t* hi;
  std::int16_t* lo;
  float* m;
  float* v;
  const void* grad;
  DType grad_type;
  std::int64_t n;
};

// Which of the state is written: the whole update; or, for an update in two pieces with the same bits, first the
// weights alone (m and v are computed and dropped), then the moments alone.
enum class AdamwPiece { whole, weights, moments };

void adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece = AdamwPiece::whole,
           CpuLevel level = best_cpu_level());
// The same, cut over threads.
void adamw(Threads& threads, const AdamwRange& range, const AdamwStep& step,
           AdamwPiece piece = AdamwPiece::whole, CpuLevel level = best_cpu_level());

// The split format, over ranges: split and join of tensor/dtype.h, number by number; widen takes the halves alone.
void split_range(bf16_t* hi, std::int16_t* lo, const float* x, std::int64_t n,
                 CpuLevel level = best_cpu_level());
void join_range(float* x, const bf16_t* hi, const std::int16_t* lo, std::int64_t n,
                CpuLevel level = best_cpu_level());
void widen_range(float* x, const bf16_t* hi, std::int64_t n, CpuLevel level = best_cpu_level());

}  // namespace slideway
