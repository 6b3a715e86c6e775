#include "ops/cpu/lora.h"

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/dropout.h"

namespace slideway {
namespace {

float element(Tensor x, std::int64_t i) {
  return x.dtype() == DType::f32 ? x.f32()[i] : to_float(x.bf16()[i]);
}
void add_to(Tensor x, std::int64_t i, float y) {
  if (x.dtype() == DType::f32) {
    x.f32()[i] += y;
  } else {
    x.bf16()[i] = to_bf16(to_float(x.bf16()[i]) + y);
  }
}
float dropped(Tensor x, std::int64_t t, std::int64_t c, const DropoutMask& mask, const Dropout& dropout) {
  const float value = element(x, t * x.size(1) + c);
  if (!mask.active()) return value;
  return mask.keeps(dropout.tokens[std::size_t(t)], c) ? value * mask.scale : 0;
}

}  // namespace

void lora_shrink(Threads&, Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout, CpuLevel) {
  for (const LoraPart& part : lora.parts) {
    const DropoutMask mask(dropout, part.dropout_key);
    const std::int64_t rank = part.a.size(0), inputs = part.a.size(1);
    for (std::int64_t t = part.row_begin; t < part.row_end; ++t) {
      for (std::int64_t r = 0; r < rank; ++r) {
        float sum = 0;
        for (std::int64_t c = 0; c < inputs; ++c) {
          sum += dropped(x, t, c, mask, dropout) * element(part.a, r * inputs + c);
        }
        v.f32()[t * v.size(1) + part.v_column + r] = sum;
      }
    }
  }
}

void lora_expand(Threads&, Tensor y, Tensor v, const LoraTarget& lora, CpuLevel) {
  for (const LoraPart& part : lora.parts) {
    const std::int64_t outputs = part.b.size(0), rank = part.b.size(1);
    for (std::int64_t t = part.row_begin; t < part.row_end; ++t) {
      for (std::int64_t n = 0; n < outputs; ++n) {
        float sum = 0;
        for (std::int64_t r = 0; r < rank; ++r) {
          sum += v.f32()[t * v.size(1) + part.v_column + r] * element(part.b, n * rank + r);
        }
        add_to(y, t * y.size(1) + part.out_column + n, part.scale * sum);
      }
    }
  }
}

void lora_backward(Threads&, Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                   const Dropout& dropout, CpuLevel) {
  for (const LoraPart& part : lora.parts) {
    const DropoutMask mask(dropout, part.dropout_key);
    const std::int64_t rank = part.a.size(0), inputs = part.a.size(1), outputs = part.b.size(0);
    for (std::int64_t t = part.row_begin; t < part.row_end; ++t) {
      float* const row = v.f32() + t * v.size(1) + part.v_column;
      for (std::int64_t n = 0; n < outputs; ++n) {
        const float d = part.scale * element(d_y, t * d_y.size(1) + part.out_column + n);
        for (std::int64_t r = 0; r < rank; ++r) part.d_b.f32()[n * rank + r] += d * row[r];
      }
      for (std::int64_t r = 0; r < rank; ++r) {
        float sum = 0;
        for (std::int64_t n = 0; n < outputs; ++n) {
          sum += element(d_y, t * d_y.size(1) + part.out_column + n) * element(part.b, n * rank + r);
        }
        row[r] = part.scale * sum;
      }
      for (std::int64_t c = 0; c < inputs; ++c) {
        float back = 0;
        for (std::int64_t r = 0; r < rank; ++r) {
          part.d_a.f32()[r * inputs + c] += row[r] * dropped(x, t, c, mask, dropout);
          back += row[r] * element(part.a, r * inputs + c);
        }
        if (!d_x) continue;
        const bool kept = !mask.active() || mask.keeps(dropout.tokens[std::size_t(t)], c);
        if (kept) add_to(d_x, t * inputs + c, back * mask.scale);
      }
    }
  }
}

void CpuOps::lora_shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout) {
  stream_.run([this, v, x, lora, dropout] { slideway::lora_shrink(threads_, v, x, lora, dropout); });
}

void CpuOps::lora_expand(Tensor y, Tensor v, const LoraTarget& lora) {
  stream_.run([this, y, v, lora] { slideway::lora_expand(threads_, y, v, lora); });
}

void CpuOps::lora_backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                           const Dropout& dropout) {
  stream_.run([this, d_x, d_y, x, v, lora, dropout] {
    slideway::lora_backward(threads_, d_x, d_y, x, v, lora, dropout);
  });
}

}  // namespace slideway
