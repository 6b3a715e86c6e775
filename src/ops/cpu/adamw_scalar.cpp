#include "ops/cpu/adamw_scalar.h"

#include <bit>
#include <cmath>

namespace slideway {
namespace {

// Which NaN comes out of a sum differs between processors, and between the forms of one instruction.
float one_nan(float x) {
  return std::isnan(x) ? std::bit_cast<float>(0x7fc00000u) : x;
}

}  // namespace

// The specification of AdamW: every other form of it has these bits.
void adamw_scalar(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) {
  for (std::int64_t i = 0; i < range.n; ++i) {
    const float grad = range.grad_type == DType::f32 ? static_cast<const float*>(range.grad)[i]
                                                     : to_float(static_cast<const bf16_t*>(range.grad)[i]);
    const float g = step.clip * grad;
    const float m = one_nan(std::fma(step.beta1, range.m[i], step.one_minus_beta1 * g));
    const float v = one_nan(std::fma(step.beta2, range.v[i], (step.one_minus_beta2 * g) * g));
    if (piece != AdamwPiece::moments) {
      const float w = join(range.hi[i], range.lo[i]);
      const float d = std::fma(std::sqrt(v), step.inverse_sqrt_bc2, step.epsilon);
      const float decayed = std::fma(-step.decay, w, w);
      const Split updated = split(std::fma(-step.step_size, m / d, decayed));
      range.hi[i] = updated.hi;
      range.lo[i] = updated.lo;
    }
    if (piece != AdamwPiece::weights) {
      range.m[i] = m;
      range.v[i] = v;
    }
  }
}

}  // namespace slideway
