#include "serve/kv_cache.h"

#include <algorithm>
#include <limits>

namespace slideway {
namespace {

constexpr std::size_t kPageBytes = 64 * 1024;
constexpr int kPageTokens = 64;

std::int32_t pages_in(const KvShape& shape, std::uint64_t bytes) {
  return std::int32_t(
      std::min<std::uint64_t>(bytes / shape.page_bytes, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

std::int64_t KvShape::pages(std::int64_t tokens) const {
  return (tokens + page_tokens - 1) / page_tokens * layers;
}

KvShape kv_shape(const ModelConfig& config, DType act) {
  const std::size_t token =
      2 * std::size_t(config.num_key_value_heads) * std::size_t(config.head_dim) * bytes_of(act);
  KvShape shape{.layers = config.num_layers(), .page_tokens = 1};
  while (shape.page_tokens < kPageTokens && 2 * std::size_t(shape.page_tokens) * token <= kPageBytes)
    shape.page_tokens *= 2;
  shape.page_bytes = std::size_t(shape.page_tokens) * token;
  return shape;
}

KvCache::KvCache(Device& device, const KvShape& shape, std::uint64_t bytes)
    : shape_(shape),
      pool_(pages_in(shape, bytes)),
      memory_(device.allocate(std::size_t(pool_.size()) * shape.page_bytes)) {}

bool KvCache::try_extend(KvPages& pages, std::int64_t tokens) {
  pages.of_layer.resize(std::size_t(shape_.layers));
  const auto needed = std::size_t(shape_.pages(tokens) / shape_.layers);
  const std::size_t held = pages.of_layer.front().size();
  if (needed <= held) return true;
  if (std::int64_t(needed - held) * shape_.layers > pool_.free()) return false;
  for (std::size_t i = held; i < needed; ++i)  // what is written at one time lies together
    for (auto& ids : pages.of_layer) ids.push_back(pool_.try_acquire().value());
  return true;
}

void KvCache::release(KvPages& pages) {
  for (auto& ids : pages.of_layer) {
    for (const std::int32_t id : ids) pool_.release(id);
    ids.clear();
  }
}

}  // namespace slideway
