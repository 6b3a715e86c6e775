#include "ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/adamw_scalar.h"
#include "ops/cpu/kernels.h"

namespace slideway {
namespace {

// Parameters a piece: some 850 KB of state, so that threads finish together and a piece's start costs nothing.
constexpr std::int64_t kParametersAPiece = 32768;

AdamwRange part_of(const AdamwRange& range, std::int64_t begin, std::int64_t end) {
  AdamwRange part = range;
  part.hi += begin;
  part.lo += begin;
  part.m += begin;
  part.v += begin;
  part.grad = static_cast<const std::byte*>(range.grad) + std::size_t(begin) * bytes_of(range.grad_type);
  part.n = end - begin;
  return part;
}

}  // namespace

AdamwStep adamw_step(const AdamwOptions& options, double lr, double weight_decay, double clip,
                     std::int64_t t) {
  CHECK(t >= 1, "AdamW counts its steps from 1; this is step ", t);
  const double bc1 = 1 - std::pow(options.beta1, double(t)), bc2 = 1 - std::pow(options.beta2, double(t));
  return {.beta1 = float(options.beta1),
          .one_minus_beta1 = float(1 - options.beta1),
          .beta2 = float(options.beta2),
          .one_minus_beta2 = float(1 - options.beta2),
          .epsilon = float(options.epsilon),
          .step_size = float(lr / bc1),
          .inverse_sqrt_bc2 = float(1 / std::sqrt(bc2)),
          .decay = float(lr * weight_decay),
          .clip = float(clip)};
}

void adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece, CpuLevel level) {
  CHECK(range.grad_type == DType::f32 || range.grad_type == DType::bf16, "gradients are f32 or bf16, not ",
        name_of(range.grad_type));
  if (level == CpuLevel::scalar) return adamw_scalar(range, step, piece);
  kernels(level).adamw(range, step, piece);
}

void adamw(Threads& threads, const AdamwRange& range, const AdamwStep& step, AdamwPiece piece,
           CpuLevel level) {
  threads.for_each((range.n + kParametersAPiece - 1) / kParametersAPiece, [&](std::int64_t i) {
    const std::int64_t begin = i * kParametersAPiece;
    adamw(part_of(range, begin, std::min(range.n, begin + kParametersAPiece)), step, piece, level);
  });
}

void split_range(bf16_t* hi, std::int16_t* lo, const float* x, std::int64_t n, CpuLevel level) {
  if (level != CpuLevel::scalar) return kernels(level).split(hi, lo, x, n);
  for (std::int64_t i = 0; i < n; ++i) {
    const Split parts = split(x[i]);
    hi[i] = parts.hi;
    lo[i] = parts.lo;
  }
}

void join_range(float* x, const bf16_t* hi, const std::int16_t* lo, std::int64_t n, CpuLevel level) {
  if (level != CpuLevel::scalar) return kernels(level).join(x, hi, lo, n);
  for (std::int64_t i = 0; i < n; ++i) x[i] = join(hi[i], lo[i]);
}

void widen_range(float* x, const bf16_t* hi, std::int64_t n, CpuLevel level) {
  if (level != CpuLevel::scalar) return kernels(level).widen(x, hi, n);
  for (std::int64_t i = 0; i < n; ++i) x[i] = to_float(hi[i]);
}

}  // namespace slideway
