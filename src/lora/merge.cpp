#include "lora/merge.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lora/adapter_tensors.h"

namespace slideway {
namespace {

float factor_of(const AdapterModule& module, std::int64_t n) {
  return module.factor ? module.factor.f32()[n] : 1.0f;
}

// [V, R] of an embedding as [R, V].
std::vector<float> turned(const std::vector<float>& a, std::size_t V, std::size_t R) {
  std::vector<float> out(a.size());
  for (std::size_t v = 0; v < V; ++v)
    for (std::size_t r = 0; r < R; ++r) out[r * V + v] = a[v * R + r];
  return out;
}

// An embedding's outputs are its columns: W[v, d] = factor[d] · W[v, d] + Σ_r (scale · B[d, r]) · A[v, r]
void merge_embedding(const AdapterModule& module, std::span<float> weight, Threads& threads) {
  const std::int64_t D = module.b.size(0), R = module.rank(), V = module.a.size(0);
  const std::vector<float> a = widened(module.a);
  const std::vector<float> b = turned(widened(module.b), std::size_t(D), std::size_t(R));
  threads.for_each(V, [&](std::int64_t v) {
    float* row = weight.data() + v * D;
    for (std::int64_t d = 0; d < D; ++d) row[d] *= factor_of(module, d);
    for (std::int64_t r = 0; r < R; ++r) {
      const float factor = module.scale * a[std::size_t(v * R + r)];
      for (std::int64_t d = 0; d < D; ++d) row[d] = std::fma(factor, b[std::size_t(r * D + d)], row[d]);
    }
  });
}

void merge_end(const AdapterEnd& end, std::span<float> out, Threads& threads) {
  if (end.weight) {
    const std::vector<float> weight = widened(end.weight);
    std::copy(weight.begin(), weight.end(), out.begin());
  }
  if (end.module && end.module->role == Role::embed_tokens) merge_embedding(*end.module, out, threads);
  if (end.module && end.module->role == Role::lm_head) merge_module(*end.module, out, threads);
  if (!end.rows) return;
  const std::vector<float> rows = widened(end.rows);
  const auto D = std::size_t(end.rows.size(1));
  for (std::size_t i = 0; i < end.tokens.size(); ++i)
    std::copy_n(rows.begin() + std::ptrdiff_t(i * D), D,
                out.begin() + std::ptrdiff_t(std::size_t(end.tokens[i]) * D));
}

void merge_bias(const AdapterModule& module, std::span<float> bias) {
  if (!module.shift) return;
  for (std::size_t n = 0; n < bias.size(); ++n)
    bias[n] = factor_of(module, std::int64_t(n)) * bias[n] + module.shift.f32()[n];
}

}  // namespace

void check_mergeable(const Adapter& adapter, const ModelLayout& layout) {
  if (layout.head.find(Role::lm_head)) return;
  const AdapterEnd &embedding = adapter.embedding(), &head = adapter.head();
  const bool same_rows = embedding.tokens == head.tokens && embedding.rows.data() == head.rows.data();
  if (embedding.weight || embedding.module || head.weight || head.module || !same_rows)
    fail(ErrorKind::unsupported,
         "the model's embedding and head are one tensor (tie_word_embeddings), which this adapter would "
         "part: it "
         "changes ",
         embedding ? "model.embed_tokens" : "lm_head", "; serve it without merging");
}

void merge_module(const AdapterModule& module, std::span<float> weight, Threads& threads) {
  if (!module.b) return;
  const std::int64_t N = module.b.size(0), R = module.rank(), C = module.a.size(1);
  CHECK(std::int64_t(weight.size()) == N * C, module.name);
  const std::vector<float> a = widened(module.a), b = widened(module.b);
  threads.for_each(N, [&](std::int64_t n) {
    float* row = weight.data() + n * C;
    if (module.factor)
      for (std::int64_t c = 0; c < C; ++c) row[c] *= factor_of(module, n);
    for (std::int64_t r = 0; r < R; ++r) {
      const float factor = module.scale * b[std::size_t(n * R + r)];
      const float* of_a = a.data() + r * C;
      for (std::int64_t c = 0; c < C; ++c) row[c] = std::fma(factor, of_a[c], row[c]);
    }
  });
}

void merge_adapter(const Adapter& adapter, const TensorSpec& spec, std::span<float> out, Threads& threads) {
  if (spec.role == Role::embed_tokens) return merge_end(adapter.embedding(), out, threads);
  if (spec.role == Role::lm_head) return merge_end(adapter.head(), out, threads);
  const auto biased = biased_role(spec.role);
  if (!biased && !is_lora_role(spec.role)) return;
  const std::string name = spec.name.substr(0, spec.name.rfind('.'));
  for (const AdapterModule& module : adapter.modules()) {
    if (module.name != name) continue;
    if (biased)
      merge_bias(module, out);
    else
      merge_module(module, out, threads);
  }
}

}  // namespace slideway
