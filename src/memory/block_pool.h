// BlockPool: which of a fixed number of equal blocks are taken, and by how many.
//
// Bookkeeping alone: ids and reference counts on the host, O(1) each, never the blocks' memory. A block that was given
// back last is handed out first, while its bytes may still be in a cache.
//
// Units    blocks
// Threads  one at a time
// Errors   internal: releasing or sharing a block that nobody holds
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace slideway {

class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::optional<std::int32_t> try_acquire();      // one reference; none when all are taken
  bool try_acquire(std::span<std::int32_t> ids);  // all of them or none
  void share(std::int32_t id);                    // one reference more
  bool release(std::int32_t id);                  // one less; true when that was the last

  std::int32_t size() const { return std::int32_t(references_.size()); }
  std::int32_t free() const { return std::int32_t(free_.size()); }
  std::int32_t references(std::int32_t id) const { return references_.at(std::size_t(id)); }

 private:
  std::vector<std::int32_t> references_;  // by id; 0: free
  std::vector<std::int32_t> free_;        // a stack
};

}  // namespace slideway
