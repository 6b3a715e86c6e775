#include "ops/cpu/row_products.h"

#include <cmath>

namespace slideway {
namespace {

constexpr std::int64_t kOutputsAPiece = 64;

float element(Tensor x, std::int64_t i) {
  return x.dtype() == DType::f32 ? x.f32()[i] : to_float(x.bf16()[i]);
}

float dot(Tensor x, std::int64_t x_at, Tensor w, std::int64_t w_at, std::int64_t n) {
  float lane[16] = {};
  for (std::int64_t c = 0; c < n; ++c)
    lane[c % 16] = std::fma(element(x, x_at + c), element(w, w_at + c), lane[c % 16]);
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

}  // namespace

void row_linear(Threads& threads, Tensor out, Tensor x, Tensor w, Tensor bias, CpuLevel) {
  const std::int64_t rows = x.size(0), outputs = w.size(0), inputs = w.size(1);
  const std::int64_t pieces = (outputs + kOutputsAPiece - 1) / kOutputsAPiece;
  threads.for_each(pieces, [&](std::int64_t piece) {
    const std::int64_t end = std::min(outputs, (piece + 1) * kOutputsAPiece);
    for (std::int64_t n = piece * kOutputsAPiece; n < end; ++n) {
      for (std::int64_t t = 0; t < rows; ++t) {
        float sum = dot(x, t * inputs, w, n * inputs, inputs);
        if (bias) sum += element(bias, n);
        if (out.dtype() == DType::f32) {
          out.f32()[t * outputs + n] = sum;
        } else {
          out.bf16()[t * outputs + n] = to_bf16(sum);
        }
      }
    }
  });
}

}  // namespace slideway
