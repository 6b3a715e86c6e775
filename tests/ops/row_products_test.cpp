// Row products: against f64, and bit for bit alike for any number of rows, threads and any level.
#include "ops/cpu/row_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/guarded.h"

namespace slideway {
namespace {

struct Case {
  std::int64_t rows, outputs, inputs;
};

void against_double(const Case& c, DType act, DType weight, DType out_type, bool with_bias, CpuLevel level) {
  Threads threads(2);
  Guarded x(act, c.rows * c.inputs, 1), w(weight, c.outputs * c.inputs, 2), bias(weight, c.outputs, 3);
  Guarded out(out_type, c.rows * c.outputs);
  row_linear(threads, out.tensor({c.rows, c.outputs}), x.tensor({c.rows, c.inputs}),
             w.tensor({c.outputs, c.inputs}), with_bias ? bias.tensor({c.outputs}) : Tensor(), level);
  EXPECT_TRUE(out.guarded());
  for (std::int64_t t = 0; t < c.rows; ++t) {
    for (std::int64_t n = 0; n < c.outputs; ++n) {
      double sum = with_bias ? bias.at(n) : 0, size = std::fabs(sum);
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        const double product = x.at(t * c.inputs + i) * w.at(n * c.inputs + i);
        sum += product;
        size += std::fabs(product);
      }
      const double rounding = out_type == DType::f32 ? 0 : 0x1.01p-8 * std::fabs(sum);
      ASSERT_NEAR(out.at(t * c.outputs + n), sum, rounding + 0x1p-24 * size * (2 + double(c.inputs) / 16))
          << t << "," << n << " of [" << c.rows << ", " << c.outputs << "], C " << c.inputs;
    }
  }
}

TEST(RowProducts, EqualTheFormulaInDoublePrecisionForEveryTypeAndShape) {
  for (const CpuLevel level : vector_levels()) {
    for (const Case& c : {Case{1, 1, 1}, Case{1, 8, 16}, Case{2, 9, 17}, Case{3, 7, 31}, Case{4, 40, 64},
                          Case{5, 33, 100}, Case{7, 17, 576}, Case{49, 24, 48}, Case{97, 8, 2100}}) {
      for (const DType act : {DType::f32, DType::bf16}) {
        for (const DType weight : {DType::f32, DType::bf16}) {
          against_double(c, act, weight, act, false, level);
          against_double(c, act, weight, DType::f32, true, level);
        }
      }
    }
  }
}

TEST(RowProducts, GiveARowTheSameBitsAloneAndAmongOthers) {
  constexpr std::int64_t kRows = 101, kOutputs = 37, kInputs = 1100;
  for (const CpuLevel level : vector_levels()) {
    for (const DType weight : {DType::f32, DType::bf16}) {
      Threads threads(2);
      Guarded x(DType::f32, kRows * kInputs, 1), w(weight, kOutputs * kInputs, 2);
      Guarded all(DType::f32, kRows * kOutputs);
      row_linear(threads, all.tensor({kRows, kOutputs}), x.tensor({kRows, kInputs}),
                 w.tensor({kOutputs, kInputs}), {}, level);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 16, 64}) {
        for (std::int64_t first = 0; first + rows <= kRows; first += rows + 3) {
          Guarded some(DType::f32, rows * kOutputs);
          row_linear(threads, some.tensor({rows, kOutputs}),
                     x.tensor({kRows, kInputs}).rows(first, first + rows), w.tensor({kOutputs, kInputs}), {},
                     level);
          for (std::int64_t t = 0; t < rows; ++t)
            ASSERT_TRUE(some.same_row(t, all, first + t, kOutputs)) << rows;
        }
      }
    }
  }
}

TEST(RowProducts, HaveTheSameBitsOnAnyNumberOfThreadsAndAtEveryLevel) {
  for (const Case& c : {Case{1, 500, 600}, Case{5, 123, 77}, Case{60, 70, 2100}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      Guarded x(type, c.rows * c.inputs, 1), w(DType::bf16, c.outputs * c.inputs, 2),
          bias(DType::f32, c.outputs, 3);
      Guarded expected(type, c.rows * c.outputs);
      bool first = true;
      for (const CpuLevel level : vector_levels()) {
        for (const int count : {1, 2, 3}) {
          Threads threads(count);
          Guarded out(type, c.rows * c.outputs);
          row_linear(threads, out.tensor({c.rows, c.outputs}), x.tensor({c.rows, c.inputs}),
                     w.tensor({c.outputs, c.inputs}), bias.tensor({c.outputs}), level);
          if (first) expected = out;
          first = false;
          for (std::int64_t t = 0; t < c.rows; ++t) {
            ASSERT_TRUE(out.same_row(t, expected, t, c.outputs)) << name_of(level) << " " << count;
          }
        }
      }
    }
  }
}

TEST(RowProducts, KeepOneRowsInfinityOutOfTheOthers) {
  for (const CpuLevel level : vector_levels()) {
    Threads threads(1);
    Guarded x(DType::f32, 3 * 33, 1), w(DType::bf16, 9 * 33, 2), out(DType::f32, 3 * 9);
    x.set(33 + 32, INFINITY);
    row_linear(threads, out.tensor({3, 9}), x.tensor({3, 33}), w.tensor({9, 33}), {}, level);
    for (std::int64_t i = 0; i < 27; ++i) EXPECT_EQ(std::isfinite(out.at(i)), i < 9 || i >= 18) << i;
  }
}

}  // namespace
}  // namespace slideway
