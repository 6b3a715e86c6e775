#include "memory/block_pool.h"

#include "core/error.h"

namespace slideway {

BlockPool::BlockPool(std::int32_t blocks) : references_(std::size_t(blocks), 0) {
  free_.reserve(std::size_t(blocks));
  for (std::int32_t id = blocks - 1; id >= 0; --id) free_.push_back(id);
}

std::optional<std::int32_t> BlockPool::try_acquire() {
  std::int32_t id = 0;
  if (!try_acquire({&id, 1})) return std::nullopt;
  return id;
}

bool BlockPool::try_acquire(std::span<std::int32_t> ids) {
  if (ids.size() > free_.size()) return false;
  for (std::int32_t& id : ids) {
    id = free_.back();
    free_.pop_back();
    references_[std::size_t(id)] = 1;
  }
  return true;
}

void BlockPool::share(std::int32_t id) {
  CHECK(references(id) > 0, "block ", id, " is free");
  ++references_[std::size_t(id)];
}

bool BlockPool::release(std::int32_t id) {
  CHECK(references(id) > 0, "block ", id, " is free");
  if (--references_[std::size_t(id)] > 0) return false;
  free_.push_back(id);
  return true;
}

}  // namespace slideway
