// LoRA: against f64, gradients by finite differences, and bit for bit alike for any other rows, thread count and level.
#include "ops/cpu/lora.h"

#include <gtest/gtest.h>

#include <deque>

#include "ops/cpu/dropout.h"
#include "ops/guarded.h"

namespace slideway {
namespace {

struct PartShape {
  std::int64_t rank, outputs, row_begin, row_end, out_column;
  DType type = DType::f32;
};

// A projection with its additions, its tensors guarded.
struct Case {
  std::int64_t rows, inputs, width;  // T, C, N'
  std::vector<PartShape> shapes;
  DType act = DType::f32;
  float p = 0;

  std::deque<Guarded> a, b, d_a, d_b;
  std::vector<LoraPart> parts;
  std::vector<std::int64_t> tokens;
  LoraTarget lora;
  Dropout dropout;

  void make() {
    std::int64_t rank_sum = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const PartShape& s = shapes[i];
      a.emplace_back(s.type, s.rank * inputs, unsigned(10 + i));
      b.emplace_back(s.type, s.outputs * s.rank, unsigned(20 + i));
      d_a.emplace_back(DType::f32, s.rank * inputs, unsigned(30 + i));
      d_b.emplace_back(DType::f32, s.outputs * s.rank, unsigned(40 + i));
      parts.push_back({.a = a[i].tensor({s.rank, inputs}),
                       .b = b[i].tensor({s.outputs, s.rank}),
                       .scale = 0.7f + float(i),
                       .row_begin = s.row_begin,
                       .row_end = s.row_end,
                       .out_column = s.out_column,
                       .v_column = rank_sum,
                       .d_a = d_a[i].tensor({s.rank, inputs}),
                       .d_b = d_b[i].tensor({s.outputs, s.rank}),
                       .dropout_key = 100 + i});
      rank_sum += s.rank;
    }
    lora = {.parts = parts, .v_width = rank_sum};
    for (std::int64_t t = 0; t < rows; ++t) tokens.push_back(7 * t + 3);
    dropout = {.p = p, .seed = 5, .tokens = tokens};
  }
  std::int64_t v_width() const { return lora.v_width; }
};

double factor(const Case& c, const LoraPart& part, std::int64_t t, std::int64_t column) {
  const DropoutMask mask(c.dropout, part.dropout_key);
  return mask.active() ? double(mask.factor(c.tokens[std::size_t(t)], column)) : 1;
}

// The three ops in f64. v, y, d_x and the gradients are added to or set as the ops do.
struct Reference {
  const Case& c;
  std::vector<double> v, y, d_v, d_x;
  std::vector<std::vector<double>> d_a, d_b;

  template <class F>
  void for_parts(const F& f) {
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
      for (std::int64_t t = c.parts[i].row_begin; t < c.parts[i].row_end; ++t)
        f(i, c.shapes[i], c.parts[i], t);
    }
  }
  Reference(const Case& of, const Guarded& x, const Guarded& y_before, const Guarded& d_y,
            const Guarded& d_x_before)
      : c(of), v(std::size_t(c.rows * c.v_width())), d_v(v.size()) {
    const auto V = [&](std::vector<double>& m, const LoraPart& p, std::int64_t t, std::int64_t r) -> double& {
      return m[std::size_t(t * c.v_width() + p.v_column + r)];
    };
    for (std::int64_t i = 0; i < c.rows * c.width; ++i) y.push_back(y_before.at(i));
    for (std::int64_t i = 0; i < c.rows * c.inputs; ++i) d_x.push_back(d_x_before.at(i));
    for (std::size_t i = 0; i < c.parts.size(); ++i) {
      d_a.emplace_back();
      d_b.emplace_back();
      for (std::int64_t k = 0; k < c.d_a[i].count; ++k) d_a[i].push_back(c.d_a[i].at(k));
      for (std::int64_t k = 0; k < c.d_b[i].count; ++k) d_b[i].push_back(c.d_b[i].at(k));
    }
    for_parts([&](std::size_t i, const PartShape& s, const LoraPart& p, std::int64_t t) {
      for (std::int64_t r = 0; r < s.rank; ++r) {
        for (std::int64_t k = 0; k < c.inputs; ++k) {
          V(v, p, t, r) += x.at(t * c.inputs + k) * factor(c, p, t, k) * c.a[i].at(r * c.inputs + k);
        }
        for (std::int64_t n = 0; n < s.outputs; ++n) {
          const double d = double(p.scale) * d_y.at(t * c.width + p.out_column + n);
          y[std::size_t(t * c.width + p.out_column + n)] +=
              double(p.scale) * V(v, p, t, r) * c.b[i].at(n * s.rank + r);
          d_b[i][std::size_t(n * s.rank + r)] += d * V(v, p, t, r);
          V(d_v, p, t, r) += d * c.b[i].at(n * s.rank + r);
        }
        for (std::int64_t k = 0; k < c.inputs; ++k) {
          const double f = factor(c, p, t, k), d = V(d_v, p, t, r);
          d_a[i][std::size_t(r * c.inputs + k)] += d * f * x.at(t * c.inputs + k);
          d_x[std::size_t(t * c.inputs + k)] += d * f * c.a[i].at(r * c.inputs + k);
        }
      }
    });
  }
};

void expect_near(const Guarded& got, const std::vector<double>& expected, double relative, const char* name) {
  double size = 0;
  for (const double e : expected) size = std::max(size, std::fabs(e));
  ASSERT_TRUE(got.guarded()) << name;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(got.at(std::int64_t(i)), expected[i], relative * size) << name << " " << i;
  }
}

void against_double(Case c, CpuLevel level) {
  c.make();
  Threads threads(2);
  Guarded x(c.act, c.rows * c.inputs, 1), y(c.act, c.rows * c.width, 2), d_y(c.act, c.rows * c.width, 3);
  Guarded d_x(c.act, c.rows * c.inputs, 4), v(DType::f32, c.rows * c.v_width());
  for (std::int64_t i = 0; i < v.count; ++i) v.set(i, 0);  // rows without a part are left alone
  const Reference expected(c, x, y, d_y, d_x);
  const Tensor v_tensor = v.tensor({c.rows, c.v_width()});
  lora_shrink(threads, v_tensor, x.tensor({c.rows, c.inputs}), c.lora, c.dropout, level);
  expect_near(v, expected.v, 2e-6, "v");
  lora_expand(threads, y.tensor({c.rows, c.width}), v_tensor, c.lora, level);
  const double act = c.act == DType::f32 ? 4e-6 : 8e-3;
  expect_near(y, expected.y, act, "y");
  lora_backward(threads, d_x.tensor({c.rows, c.inputs}), d_y.tensor({c.rows, c.width}),
                x.tensor({c.rows, c.inputs}), v_tensor, c.lora, c.dropout, level);
  expect_near(v, expected.d_v, 4e-6, "d_v");
  expect_near(d_x, expected.d_x, act, "d_x");
  for (std::size_t i = 0; i < c.parts.size(); ++i) {
    expect_near(c.d_a[i], expected.d_a[i], 8e-6, "d_a");
    expect_near(c.d_b[i], expected.d_b[i], 8e-6, "d_b");
    EXPECT_TRUE(c.a[i].guarded() && c.b[i].guarded());
  }
}

std::vector<Case> cases() {
  return {
      {.rows = 1, .inputs = 16, .width = 8, .shapes = {{1, 8, 0, 1, 0}}},
      {.rows = 5,
       .inputs = 33,
       .width = 70,
       .shapes = {{3, 20, 0, 5, 0}, {3, 11, 0, 5, 20}, {8, 39, 0, 5, 31}}},
      {.rows = 130, .inputs = 100, .width = 200, .shapes = {{16, 130, 0, 130, 0}, {16, 70, 0, 130, 130}}},
      {.rows = 9,
       .inputs = 64,
       .width = 96,
       .shapes = {{4, 96, 1, 3, 0}, {17, 96, 3, 4, 0, DType::bf16}, {64, 96, 6, 9, 0}}},
      {.rows = 3, .inputs = 576, .width = 65, .shapes = {{512, 65, 0, 3, 0, DType::bf16}}},
      {.rows = 67, .inputs = 90, .width = 30, .shapes = {{5, 30, 0, 67, 0}}, .act = DType::bf16},
      {.rows = 67, .inputs = 90, .width = 60, .shapes = {{5, 30, 0, 67, 0}, {7, 30, 2, 60, 30}}, .p = 0.3f},
      {.rows = 70,
       .inputs = 130,
       .width = 30,
       .shapes = {{5, 30, 0, 70, 0, DType::bf16}},
       .act = DType::bf16,
       .p = 0.1f},
  };
}

TEST(Lora, EqualsItsFormulasInDoublePrecision) {
  for (const CpuLevel level : vector_levels()) {
    for (const Case& c : cases()) against_double(c, level);
  }
}

// Σ y ⊙ weights of the forward, in which y starts from zero.
double objective(Threads& threads, const Case& c, Guarded& x, const Guarded& weights) {
  Guarded y(DType::f32, c.rows * c.width), v(DType::f32, c.rows * c.v_width());
  for (std::int64_t i = 0; i < y.count; ++i) y.set(i, 0);
  lora_shrink(threads, v.tensor({c.rows, c.v_width()}), x.tensor({c.rows, c.inputs}), c.lora, c.dropout);
  lora_expand(threads, y.tensor({c.rows, c.width}), v.tensor({c.rows, c.v_width()}), c.lora);
  double sum = 0;
  for (std::int64_t i = 0; i < y.count; ++i) sum += y.at(i) * weights.at(i);
  return sum;
}

TEST(Lora, GradientsEqualFiniteDifferences) {
  Case c{.rows = 6, .inputs = 40, .width = 20, .shapes = {{4, 12, 0, 6, 0}, {3, 8, 1, 5, 12}}, .p = 0.25f};
  c.make();
  Threads threads(2);
  Guarded x(DType::f32, c.rows * c.inputs, 1), d_y(DType::f32, c.rows * c.width, 3);
  Guarded d_x(DType::f32, c.rows * c.inputs), v(DType::f32, c.rows * c.v_width());
  for (std::int64_t i = 0; i < d_x.count; ++i) d_x.set(i, 0);
  for (std::size_t p = 0; p < 2; ++p) {
    for (std::int64_t i = 0; i < c.d_a[p].count; ++i) c.d_a[p].set(i, 0);
    for (std::int64_t i = 0; i < c.d_b[p].count; ++i) c.d_b[p].set(i, 0);
  }
  lora_shrink(threads, v.tensor({c.rows, c.v_width()}), x.tensor({c.rows, c.inputs}), c.lora, c.dropout);
  lora_backward(threads, d_x.tensor({c.rows, c.inputs}), d_y.tensor({c.rows, c.width}),
                x.tensor({c.rows, c.inputs}), v.tensor({c.rows, c.v_width()}), c.lora, c.dropout);
  const auto check = [&](Guarded& input, const Guarded& gradient, const char* name) {
    for (std::int64_t i = 0; i < input.count; i += 5) {
      const auto middle = float(input.at(i));
      input.set(i, middle + 0.25f);  // the objective is linear in each number: a large step has no error
      const double above = objective(threads, c, x, d_y);
      input.set(i, middle - 0.25f);
      const double below = objective(threads, c, x, d_y);
      input.set(i, middle);
      EXPECT_NEAR(gradient.at(i), (above - below) / 0.5, 2e-3) << name << " " << i;
    }
  };
  check(x, d_x, "d_x");
  for (std::size_t p = 0; p < 2; ++p) {
    check(c.a[p], c.d_a[p], "d_a");
    check(c.b[p], c.d_b[p], "d_b");
  }
}

struct Results {
  Guarded v, y, d_v, d_x;
  std::deque<Guarded> d_a, d_b;
};

Results all_of(Case c, int thread_count, CpuLevel level) {
  c.make();
  Threads threads(thread_count);
  Guarded x(c.act, c.rows * c.inputs, 1), d_y(c.act, c.rows * c.width, 3);
  Results r{Guarded(DType::f32, c.rows * c.v_width()),
            Guarded(c.act, c.rows * c.width, 2),
            Guarded(DType::f32, c.rows * c.v_width()),
            Guarded(c.act, c.rows * c.inputs, 4),
            {},
            {}};
  lora_shrink(threads, r.v.tensor({c.rows, c.v_width()}), x.tensor({c.rows, c.inputs}), c.lora, c.dropout,
              level);
  lora_expand(threads, r.y.tensor({c.rows, c.width}), r.v.tensor({c.rows, c.v_width()}), c.lora, level);
  r.d_v = r.v;
  lora_backward(threads, r.d_x.tensor({c.rows, c.inputs}), d_y.tensor({c.rows, c.width}),
                x.tensor({c.rows, c.inputs}), r.d_v.tensor({c.rows, c.v_width()}), c.lora, c.dropout, level);
  r.d_a = c.d_a;
  r.d_b = c.d_b;
  return r;
}

TEST(Lora, HasTheSameBitsOnAnyNumberOfThreadsAndAtEveryLevel) {
  std::vector<Case> all = cases();
  all.push_back({.rows = 200,
                 .inputs = 300,
                 .width = 500,
                 .shapes = {{24, 300, 0, 200, 0}, {40, 200, 0, 150, 300}},
                 .p = 0.5f});
  for (const Case& c : all) {
    const Results expected = all_of(c, 1, vector_levels().front());
    for (const CpuLevel level : vector_levels()) {
      for (const int threads : {2, 3}) {
        const Results got = all_of(c, threads, level);
        ASSERT_TRUE(got.v.same_row(0, expected.v, 0, got.v.count)) << name_of(level);
        ASSERT_TRUE(got.y.same_row(0, expected.y, 0, got.y.count)) << name_of(level);
        ASSERT_TRUE(got.d_v.same_row(0, expected.d_v, 0, got.d_v.count)) << name_of(level);
        ASSERT_TRUE(got.d_x.same_row(0, expected.d_x, 0, got.d_x.count)) << name_of(level);
        for (std::size_t i = 0; i < c.shapes.size(); ++i) {
          ASSERT_TRUE(got.d_a[i].same_row(0, expected.d_a[i], 0, got.d_a[i].count)) << name_of(level);
          ASSERT_TRUE(got.d_b[i].same_row(0, expected.d_b[i], 0, got.d_b[i].count)) << name_of(level);
        }
      }
    }
  }
}

TEST(Lora, GivesARowTheSameBitsAloneAndAmongOtherAdapters) {
  Case batch{.rows = 90,
             .inputs = 70,
             .width = 100,
             .shapes = {{8, 100, 0, 40, 0}, {16, 100, 40, 41, 0}, {5, 100, 50, 90, 0}}};
  batch.make();
  Threads threads(2);
  Guarded x(DType::f32, 90 * 70, 1), y(DType::f32, 90 * 100, 2), before = y,
                                                                 v(DType::f32, 90 * batch.v_width());
  lora_shrink(threads, v.tensor({90, batch.v_width()}), x.tensor({90, 70}), batch.lora, {});
  lora_expand(threads, y.tensor({90, 100}), v.tensor({90, batch.v_width()}), batch.lora);
  for (const LoraPart& part : batch.parts) {
    for (std::int64_t t = part.row_begin; t < part.row_end; ++t) {
      LoraPart alone = part;
      alone.row_begin = 0, alone.row_end = 1, alone.v_column = 0;
      const LoraTarget lora{.parts = {&alone, 1}, .v_width = part.a.size(0)};
      Guarded one(DType::f32, 100), its_v(DType::f32, lora.v_width);
      for (std::int64_t i = 0; i < 100; ++i) one.copy(i, before, t * 100 + i);
      lora_shrink(threads, its_v.tensor({1, lora.v_width}), x.tensor({90, 70}).rows(t, t + 1), lora, {});
      lora_expand(threads, one.tensor({1, 100}), its_v.tensor({1, lora.v_width}), lora);
      ASSERT_TRUE(one.same_row(0, y, t, 100)) << t;
    }
  }
  for (std::int64_t t = 41; t < 50; ++t)
    ASSERT_TRUE(y.same_row(t, before, t, 100)) << "a row without an adapter";
}

TEST(Lora, DropsTheSameElementsOfATokenWhereverItsRowLies) {
  Case whole{.rows = 12, .inputs = 200, .width = 8, .shapes = {{4, 8, 0, 12, 0}}, .p = 0.4f};
  whole.make();
  Threads threads(1);
  Guarded x(DType::f32, 12 * 200, 1), v(DType::f32, 12 * 4), half(DType::f32, 5 * 4);
  lora_shrink(threads, v.tensor({12, 4}), x.tensor({12, 200}), whole.lora, whole.dropout);
  LoraPart part = whole.parts[0];
  part.row_end = 5;
  const Dropout dropout{.p = 0.4f, .seed = 5, .tokens = whole.dropout.tokens.subspan(7)};
  lora_shrink(threads, half.tensor({5, 4}), x.tensor({12, 200}).rows(7, 12),
              {.parts = {&part, 1}, .v_width = 4}, dropout);
  for (std::int64_t t = 0; t < 5; ++t) EXPECT_TRUE(half.same_row(t, v, 7 + t, 4));
}

TEST(Lora, DropsTheShareThatWasAskedForAndDrawsAnewForEverySeedModuleAndToken) {
  for (const float p : {0.05f, 0.5f, 0.9f}) {
    std::int64_t kept = 0, alike_seed = 0, alike_key = 0, alike_token = 0;
    constexpr std::int64_t kColumns = 40000;
    const DropoutMask mask({.p = p, .seed = 1}, 1), seed({.p = p, .seed = 2}, 1), key({.p = p, .seed = 1}, 2);
    for (std::int64_t c = 0; c < kColumns; ++c) {
      const bool here = mask.factor(9, c) != 0;
      kept += here;
      alike_seed += here == (seed.factor(9, c) != 0);
      alike_key += here == (key.factor(9, c) != 0);
      alike_token += here == (mask.factor(10, c) != 0);
    }
    const double alike = kColumns * (double(p) * double(p) + (1 - double(p)) * (1 - double(p)));
    EXPECT_NEAR(double(kept), kColumns * (1 - double(p)), 450);
    for (const std::int64_t count : {alike_seed, alike_key, alike_token})
      EXPECT_NEAR(double(count), alike, 450);
    EXPECT_FLOAT_EQ(mask.scale, 1 / (1 - p));
  }
}

// y = factor · y + shift + scale · v Bᵀ, rounded once; without a and b too; other columns and rows stay.
TEST(Lora, ScalesAndShiftsWhatItAddsTo) {
  for (const DType act : {DType::f32, DType::bf16})
    for (const bool has_b : {true, false}) {
      constexpr std::int64_t T = 70, N = 90, W = 100, R = 3;
      Guarded y(act, T * W, 1), before(act, T * W, 1), v(DType::f32, T * R, 2), b(DType::f32, N * R, 3);
      Guarded by(DType::f32, N, 4), shift(DType::f32, N, 5);
      const LoraPart part{.b = has_b ? b.tensor({N, R}) : Tensor(),
                          .scale = 0.5f,
                          .row_begin = 2,
                          .row_end = 69,
                          .out_column = 7,
                          .factor = by.tensor({N}),
                          .shift = shift.tensor({N})};
      Threads threads(2);
      lora_expand(threads, y.tensor({T, W}), v.tensor({T, R}), {.parts = {&part, 1}, .v_width = R});
      const auto at = [](const Tensor& x, std::int64_t i) {
        return x.dtype() == DType::f32 ? x.f32()[i] : to_float(x.bf16()[i]);
      };
      const Tensor got = y.tensor({T, W}), old = before.tensor({T, W}), vs = v.tensor({T, R});
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t c = 0; c < W; ++c) {
          const float was = at(old, t * W + c), is = at(got, t * W + c);
          const std::int64_t n = c - 7;
          if (t < 2 || t >= 69 || n < 0 || n >= N) {
            EXPECT_EQ(is, was) << t << ", " << c;
            continue;
          }
          double wanted = double(part.factor.f32()[n]) * was + part.shift.f32()[n];
          for (std::int64_t r = 0; has_b && r < R; ++r)
            wanted += 0.5 * vs.f32()[t * R + r] * part.b.f32()[n * R + r];
          EXPECT_NEAR(is, wanted, (act == DType::f32 ? 1e-5 : 0x1p-8) * (1 + std::abs(wanted)));
        }
    }
}

}  // namespace
}  // namespace slideway
