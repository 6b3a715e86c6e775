// KvCache: keys and values of running sequences, in pages of one layer.
//
// A page is P tokens of K and V of one layer: keys [P, K, E], then values [P, K, E], as ops.h's PagedKv has it. P is
// the largest power of two with which a page is at most 64 KiB (and at most 64 tokens), so that blocks of other use can
// share the pool.
//
// Units    bytes, tokens, pages
// Owns     the pool's memory
// Threads  one at a time
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "memory/block_pool.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace slideway {

struct KvShape {
  int layers = 0;
  int page_tokens = 0;                            // P
  std::size_t page_bytes = 0;                     // of one layer
  std::int64_t pages(std::int64_t tokens) const;  // all layers together
  std::uint64_t bytes(std::int64_t tokens) const { return std::uint64_t(pages(tokens)) * page_bytes; }
};
KvShape kv_shape(const ModelConfig& config, DType act);

// The pages of one sequence.
struct KvPages {
  std::vector<std::vector<std::int32_t>> of_layer;  // [L]: ids in order of position
};

class KvCache {
 public:
  // Room for so many bytes, rounded down to whole pages; physical memory is taken as it is first written.
  KvCache(Device& device, const KvShape& shape, std::uint64_t bytes);

  // Makes pages hold that many tokens; false, and nothing is changed, where the pool has too few left.
  bool try_extend(KvPages& pages, std::int64_t tokens);
  void release(KvPages& pages);

  const KvShape& shape() const { return shape_; }
  const BlockPool& pool() const { return pool_; }
  std::byte* memory() const { return memory_.data(); }

 private:
  KvShape shape_;
  BlockPool pool_;
  Buffer memory_;
};

}  // namespace slideway
