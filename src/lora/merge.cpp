#include "lora/merge.h"

#include <cmath>
#include <vector>

namespace slideway {
namespace {

std::vector<float> widened(const Tensor& tensor) {
  const auto n = std::size_t(tensor.elements());
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = tensor.dtype() == DType::f32 ? tensor.f32()[i] : to_float(tensor.bf16()[i]);
  return out;
}

}  // namespace

void merge_module(const AdapterModule& module, std::span<float> weight, Threads& threads) {
  const std::int64_t N = module.b.size(0), R = module.rank(), C = module.a.size(1);
  CHECK(std::int64_t(weight.size()) == N * C, module.name);
  const std::vector<float> a = widened(module.a), b = widened(module.b);
  threads.for_each(N, [&](std::int64_t n) {
    float* row = weight.data() + n * C;
    for (std::int64_t r = 0; r < R; ++r) {
      const float factor = module.scale * b[std::size_t(n * R + r)];
      const float* of_a = a.data() + r * C;
      for (std::int64_t c = 0; c < C; ++c) row[c] = std::fma(factor, of_a[c], row[c]);
    }
  });
}

void merge_adapter(const Adapter& adapter, const TensorSpec& spec, std::span<float> out, Threads& threads) {
  if (!is_lora_role(spec.role)) return;
  const std::string name = module_name(spec);
  for (const AdapterModule& module : adapter.modules())
    if (module.name == name) merge_module(module, out, threads);
}

}  // namespace slideway
