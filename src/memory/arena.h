// Arena: hands out pieces of one block in stack order.
//
// A Frame remembers where the stack stood and puts it back when it ends, so that a layer's temporaries live exactly
// as long as its block of code. A measuring arena (no memory behind it) only counts: the plan walks the same code
// path to learn the high-water mark. Its pieces have data(), so that they are not taken for absent, but at addresses
// where nothing lies.
//
// Units    bytes; every piece is aligned to 256, and so must be the block
// Owns     nothing: the block is the caller's
// Threads  one at a time
// Errors   internal when the block is too small, naming the piece: the plan promised otherwise
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>

#include "tensor/tensor.h"

namespace slideway {

class Arena {
 public:
  explicit Arena(std::span<std::byte> block) : block_(block) {}
  static Arena measuring() { return Arena(); }

  Tensor take(const char* what, DType dtype, std::initializer_list<std::int64_t> shape);
  std::size_t high_water() const { return high_water_; }
  bool is_measuring() const { return measuring_; }

  class Frame {
   public:
    explicit Frame(Arena& arena) : arena_(arena), mark_(arena.top_) {}
    ~Frame() { arena_.top_ = mark_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Arena& arena_;
    std::size_t mark_;
  };

 private:
  Arena() : measuring_(true) {}
  std::span<std::byte> block_;
  bool measuring_ = false;
  std::size_t top_ = 0, high_water_ = 0;
};

}  // namespace slideway
