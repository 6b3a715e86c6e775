#include "ops/cpu/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cpu/cpu_ops.h"

namespace slideway {
namespace {

float element(const void* data, DType type, std::int64_t i) {
  return type == DType::f32 ? static_cast<const float*>(data)[i]
                            : to_float(static_cast<const bf16_t*>(data)[i]);
}

// The key (value: 1) vector of a position and kv head of sequence n.
std::byte* kv_at(const PagedKv& kv, Heads heads, DType type, std::size_t n, std::int64_t position, int head,
                 int value) {
  const std::int32_t page = kv.pages[n * std::size_t(kv.max_pages) + std::size_t(position / kv.page_tokens)];
  const std::int64_t at = value * std::int64_t(kv.page_tokens) + position % kv.page_tokens;
  return kv.pool + std::size_t(page) * kv.page_bytes +
         std::size_t((at * heads.key_value + head) * heads.width) * bytes_of(type);
}

}  // namespace

void write_kv(Threads& threads, const PagedKv& kv, Tensor qkv, Heads heads) {
  const std::size_t head_bytes = std::size_t(heads.width) * bytes_of(qkv.dtype());
  const auto* rows = static_cast<const std::byte*>(qkv.data());
  threads.for_each(std::int64_t(kv.lengths.size()), [&](std::int64_t n) {
    const std::int64_t begin = kv.starts[std::size_t(n)], end = kv.starts[std::size_t(n) + 1];
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t position = kv.lengths[std::size_t(n)] - (end - t);
      const std::byte* row = rows + std::size_t(t * heads.row()) * bytes_of(qkv.dtype());
      for (int value = 0; value < 2; ++value) {
        const std::byte* from = row + std::size_t(heads.query + value * heads.key_value) * head_bytes;
        std::memcpy(kv_at(kv, heads, qkv.dtype(), std::size_t(n), position, 0, value), from,
                    head_bytes * std::size_t(heads.key_value));
      }
    }
  });
}

void paged_attention(Threads& threads, Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale,
                     CpuLevel) {
  const DType type = qkv.dtype();
  const std::int64_t width = heads.width;
  threads.for_each(std::int64_t(kv.lengths.size()) * heads.query, [&](std::int64_t piece) {
    const auto n = std::size_t(piece / heads.query);
    const auto h = int(piece % heads.query);
    const int kv_head = h / (heads.query / heads.key_value);
    std::vector<float> weights, sum(static_cast<std::size_t>(width));
    for (std::int64_t t = kv.starts[n]; t < kv.starts[n + 1]; ++t) {
      const std::int64_t last = kv.lengths[n] - (kv.starts[n + 1] - t);
      const std::int64_t first = kv.window > 0 ? std::max<std::int64_t>(0, last - kv.window + 1) : 0;
      weights.assign(std::size_t(last - first + 1), 0);
      float highest = -INFINITY, total = 0;
      for (std::int64_t s = first; s <= last; ++s) {
        const std::byte* key = kv_at(kv, heads, type, n, s, kv_head, 0);
        float dot = 0;
        for (std::int64_t e = 0; e < width; ++e) {
          dot += element(qkv.data(), type, t * heads.row() + h * width + e) * element(key, type, e);
        }
        weights[std::size_t(s - first)] = scale * dot;
        highest = std::max(highest, scale * dot);
      }
      std::fill(sum.begin(), sum.end(), 0.f);
      for (std::int64_t s = first; s <= last; ++s) {
        const float weight = std::exp(weights[std::size_t(s - first)] - highest);
        const std::byte* value = kv_at(kv, heads, type, n, s, kv_head, 1);
        total += weight;
        for (std::int64_t e = 0; e < width; ++e) sum[std::size_t(e)] += weight * element(value, type, e);
      }
      for (std::int64_t e = 0; e < width; ++e) {
        const float result = sum[std::size_t(e)] / total;
        const std::int64_t at = (t * heads.query + h) * width + e;
        if (type == DType::f32) {
          out.f32()[at] = result;
        } else {
          out.bf16()[at] = to_bf16(result);
        }
      }
    }
  });
}

void CpuOps::write_kv(const PagedKv& kv, Tensor qkv, Heads heads) {
  stream_.run([this, kv, qkv, heads] { slideway::write_kv(threads_, kv, qkv, heads); });
}

void CpuOps::paged_attention(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale) {
  stream_.run([this, out, qkv, heads, kv, scale] {
    slideway::paged_attention(threads_, out, qkv, heads, kv, scale);
  });
}

}  // namespace slideway
