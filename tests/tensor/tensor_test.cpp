#include "tensor/tensor.h"

#include "support/expect_error.h"

namespace slideway {
namespace {

TEST(Tensor, IsAViewWithAShape) {
  float numbers[6] = {0, 1, 2, 3, 4, 5};
  const Tensor t(numbers, DType::f32, {3, 2});
  EXPECT_TRUE(t);
  EXPECT_EQ(t.elements(), 6);
  EXPECT_EQ(t.bytes(), 24u);
  EXPECT_EQ(t.size(0), 3);
  EXPECT_EQ(t.size(-1), 2);
  EXPECT_EQ(t.f32()[5], 5);
  EXPECT_EQ(shape_text(t), "[3, 2]");
  EXPECT_EQ(Tensor(numbers, DType::f32, {}).elements(), 1);
}

TEST(Tensor, AnEmptyOneStandsForNotThere) {
  EXPECT_FALSE(Tensor());
  EXPECT_EQ(Tensor().elements(), 0);
  EXPECT_EQ(shape_text(Tensor()), "[]");
}

TEST(Tensor, RowsAndReshapesAreViewsOfTheSameNumbers) {
  bf16_t numbers[24];
  const Tensor t(numbers, DType::bf16, {4, 3, 2});
  const Tensor rows = t.rows(1, 3);
  EXPECT_EQ(shape_text(rows), "[2, 3, 2]");
  EXPECT_EQ(rows.bf16(), numbers + 6);
  EXPECT_EQ(t.rows(4, 4).elements(), 0);
  EXPECT_EQ(shape_text(t.reshaped({12, 2})), "[12, 2]");
  EXPECT_EQ(t.reshaped({24}).data(), numbers);
}

TEST(Tensor, RefusesAViewThatWouldNotFit) {
  float numbers[6];
  const Tensor t(numbers, DType::f32, {3, 2});
  expect_error(ErrorKind::internal, {"rows [2, 4) of [3, 2]"}, [&] { t.rows(2, 4); });
  expect_error(ErrorKind::internal, {"rows [2, 1)"}, [&] { t.rows(2, 1); });
  expect_error(ErrorKind::internal, {"[3, 2] cannot be seen as [4, 2]"}, [&] { t.reshaped({4, 2}); });
  expect_error(ErrorKind::internal, {"f32", "bf16"}, [&] { t.bf16(); });
  expect_error(ErrorKind::internal, {"negative"}, [&] { Tensor(numbers, DType::f32, {-1, 2}); });
  expect_error(ErrorKind::internal, {"at most 4 axes"},
               [&] { Tensor(numbers, DType::f32, {1, 1, 1, 1, 1}); });
}

}  // namespace
}  // namespace slideway
