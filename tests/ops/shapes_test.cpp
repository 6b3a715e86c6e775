// A wrong call is refused before anything runs, with the op, the tensor, and both shapes.
#include "ops/shapes.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace slideway {
namespace {

char memory[64];
Tensor f32(std::initializer_list<std::int64_t> shape) {
  return Tensor(memory, DType::f32, shape);
}
Tensor bf16(std::initializer_list<std::int64_t> shape) {
  return Tensor(memory, DType::bf16, shape);
}
Tensor i32(std::initializer_list<std::int64_t> shape) {
  return Tensor(memory, DType::i32, shape);
}

void refused(const std::function<void()>& call, const std::string& text) {
  expect_error(ErrorKind::internal, {text}, call);
}

TEST(Shapes, LetsRightCallsPass) {
  shapes::linear(f32({3, 5}), f32({3, 4}), bf16({5, 4}), {});
  shapes::linear(f32({3, 5}), bf16({3, 4}), bf16({5, 4}), f32({5}));
  shapes::rms_norm_backward(f32({3, 4}), {}, f32({3, 4}), f32({3, 4}), bf16({4}), f32({3}));
  const std::int32_t starts[] = {0, 0, 3};
  shapes::attention(bf16({3, 16}), f32({2, 3}), bf16({3, 32}), {2, 1, 8}, {starts, 5});
}

TEST(Shapes, NamesTheTensorAndBothShapes) {
  refused([] { shapes::linear(f32({3, 6}), f32({3, 4}), f32({5, 4}), {}); },
          "linear: out is [3, 6] f32, expected [3, 5] f32 or bf16");
  refused([] { shapes::linear(f32({3, 5}), f32({3, 4}), f32({5, 3}), {}); },
          "w is [5, 3] f32, expected [5, 4]");
  refused([] { shapes::swiglu(f32({3, 4}), f32({3, 4})); }, "gate_up is [3, 4] f32, expected [3, 8]");
}

TEST(Shapes, RefusesWrongTypesAndWhatIsMissing) {
  refused([] { shapes::linear(bf16({3, 5}), f32({3, 4}), f32({5, 4}), {}); }, "out is bf16 but x is f32");
  refused([] { shapes::embed(f32({2, 4}), f32({9, 4}), f32({2})); },
          "ids is [2] f32, expected 1 axes of i32");
  refused([] { shapes::rms_norm(f32({3, 4}), {}, f32({3, 4}), f32({4})); },
          "rstd is empty, expected [3] f32");
  refused([] { shapes::cross_entropy_tile(f32({3, 2}), f32({3}), bf16({3, 9}), i32({3}), 0); },
          "logits is [3, 9] bf16");
}

TEST(Shapes, RefusesHeadsAndSequencesThatDoNotFit) {
  const std::int32_t short_of[] = {0, 2}, backwards[] = {0, 3, 2, 3};
  const Tensor out = f32({3, 16}), lse = f32({2, 3}), qkv = f32({3, 32});
  refused([&] { shapes::attention(f32({3, 24}), lse, f32({3, 56}), {3, 2, 8}, {short_of, 0}); },
          "do not fit together");
  refused([&] { shapes::attention(out, lse, qkv, {2, 1, 8}, {short_of, 0}); }, "do not run from 0 to 3");
  refused([&] { shapes::attention(out, lse, qkv, {2, 1, 8}, {backwards, 0}); },
          "sequence 1 ends at 2 before its start 3");
  refused([&] { shapes::rope(f32({3, 9}), {1, 1, 3}, i32({3}), f32({1})); }, "odd width 3");
}

TEST(Shapes, RefusesLoraPartsThatReachOutside) {
  LoraPart part{.a = f32({4, 6}), .b = f32({5, 4}), .row_end = 3, .out_column = 2, .v_column = 1};
  const LoraTarget target{{&part, 1}, 5};
  const Tensor x = f32({3, 6}), v = f32({3, 5});
  shapes::lora_expand(f32({3, 7}), v, target);
  refused([&] { shapes::lora_expand(f32({3, 6}), v, target); }, "columns 2 + 5 outputs pass y, [3, 6]");
  refused([&] { shapes::lora_backward({}, f32({3, 7}), x, v, target, {}); }, "a part without d_a or d_b");
  refused([&] { shapes::lora_shrink(v, x, target, {.p = 0.5f}); },
          "dropout knows the tokens of 0 rows, x has 3");
  part.row_end = 4;
  refused([&] { shapes::lora_shrink(v, x, target, {}); }, "rows [0, 4) of a part pass the 3 rows of v");
}

}  // namespace
}  // namespace slideway
