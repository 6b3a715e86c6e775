#include "memory/arena.h"

#include <vector>

#include "support/expect_error.h"

namespace slideway {
namespace {

struct alignas(256) Block {
  std::byte bytes[4096];
};

// A walk that a plan could take.
void walk(Arena& arena) {
  const Arena::Frame outer(arena);
  arena.take("x", DType::f32, {3, 10});
  {
    const Arena::Frame inner(arena);
    arena.take("scores", DType::bf16, {100, 7});
  }
  arena.take("y", DType::u8, {1});
}

TEST(Arena, HandsOutAlignedPiecesInStackOrder) {
  Block block;
  Arena arena(block.bytes);
  const Tensor a = arena.take("a", DType::f32, {3, 10});
  void* second = nullptr;
  {
    const Arena::Frame frame(arena);
    second = arena.take("b", DType::bf16, {5}).data();
    EXPECT_EQ(second, block.bytes + 256);
  }
  EXPECT_EQ(arena.take("c", DType::f64, {1}).data(), second);
  EXPECT_EQ(a.data(), block.bytes);
  EXPECT_EQ(shape_text(a), "[3, 10]");
}

TEST(Arena, AMeasuringOneNeedsWhatARealOneTakes) {
  Block block;
  Arena real(block.bytes), measuring = Arena::measuring();
  walk(real);
  walk(measuring);
  EXPECT_EQ(measuring.high_water(), real.high_water());
  EXPECT_EQ(measuring.high_water(), 256u + 1536u);
  EXPECT_TRUE(measuring.is_measuring());
  EXPECT_TRUE(measuring.take("x", DType::f32, {1})) << "a measured piece must not look absent";
  Arena just_enough(std::span(block.bytes).first(measuring.high_water()));
  walk(just_enough);
  Arena too_small(std::span(block.bytes).first(measuring.high_water() - 1));
  expect_error(ErrorKind::internal, {"'scores'", "bf16 [100, 7]", "1791 bytes"}, [&] { walk(too_small); });
}

}  // namespace
}  // namespace slideway
