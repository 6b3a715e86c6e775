#include "ops/cpu/scratch.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "core/error.h"

namespace slideway {
namespace {

struct Piece {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data;
  std::size_t bytes = 0;
};

}  // namespace

void* thread_scratch(ScratchSlot slot, std::size_t bytes) {
  thread_local std::array<Piece, std::size_t(ScratchSlot::count)> pieces;
  Piece& piece = pieces[std::size_t(slot)];
  if (piece.bytes < bytes || !piece.data) {
    const std::size_t whole = (std::max<std::size_t>(bytes, 4096) + 4095) / 4096 * 4096;
    piece.data.reset();
    piece.data.reset(std::aligned_alloc(4096, whole));
    piece.bytes = piece.data ? whole : 0;
    if (!piece.data) fail(ErrorKind::out_of_memory, "no ", whole, " bytes of scratch for a CPU kernel");
  }
  return piece.data.get();
}

}  // namespace slideway
