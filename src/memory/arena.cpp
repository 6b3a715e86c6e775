#include "memory/arena.h"

#include <algorithm>
#include <cstdint>

namespace slideway {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

Tensor Arena::take(const char* what, DType dtype, std::initializer_list<std::int64_t> shape) {
  // A measuring arena's pieces lie at addresses where nothing is: not null, which would mean "not there".
  std::byte* const base = measuring_ ? reinterpret_cast<std::byte*>(kAlignment) : block_.data();
  CHECK(reinterpret_cast<std::uintptr_t>(base) % kAlignment == 0, "an arena's block begins at ", (void*)base);
  const Tensor piece(base + top_, dtype, shape);
  const std::size_t bytes = (piece.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  CHECK(measuring_ || bytes <= block_.size() - top_, "the arena of ", block_.size(), " bytes has ",
        block_.size() - top_, " left, too few for '", what, "', ", name_of(dtype), " ", shape_text(piece),
        " = ", bytes, " bytes");
  top_ += bytes;
  high_water_ = std::max(high_water_, top_);
  return piece;
}

}  // namespace slideway
