// LoRA through Ops, on every backend, against its formulas in double. What the CPU promises beyond them is in lora_test.cpp.
#include "ops/cpu/dropout.h"
#include "rig.h"

namespace slideway {
namespace {

struct PartShape {
  std::int64_t rank, outputs, row_begin, row_end, out_column;
  DType type = DType::f32;
};

struct Case {
  std::string name;
  std::int64_t rows, inputs, width;  // T, C, N'
  std::vector<PartShape> parts;
  DType act = DType::f32;
  float p = 0;
  bool wants_d_x = true;
};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {"one row", 1, 16, 8, {{1, 8, 0, 1, 0}}},
      {"three slices of one projection", 5, 33, 70, {{3, 20, 0, 5, 0}, {3, 11, 0, 5, 20}, {8, 39, 0, 5, 31}}},
      {"rows that no part has", 9, 64, 96, {{4, 96, 1, 3, 0}, {17, 96, 3, 4, 0}, {64, 96, 6, 9, 0}}},
      {"a rank of 512, matrices of bf16", 3, 576, 65, {{512, 65, 0, 3, 0, DType::bf16}}},
      {"no gradient of the input", 40, 48, 32, {{8, 32, 0, 40, 0}}},
      {"as in training", 300, 256, 384, {{16, 256, 0, 300, 0}, {16, 64, 0, 300, 256}, {16, 64, 0, 300, 320}}},
      {"overlapping rows under dropout", 67, 90, 60, {{5, 30, 0, 67, 0}, {7, 30, 2, 60, 30}}},
      {"as in training, under dropout", 200, 256, 128, {{8, 64, 0, 200, 0}, {8, 64, 0, 200, 64}}},
  };
  all[4].wants_d_x = false;
  all[6].p = 0.3f;
  all[7].p = 0.1f;
  return all;
}

// The parts of a case in a backend's memory, and their numbers.
struct Parts {
  std::vector<Numbers> a, b, d_a, d_b;
  std::vector<LoraPart> parts;
  std::vector<std::int64_t> tokens;
  LoraTarget target;
  Dropout dropout;

  Parts(Rig& rig, const Case& c) {
    std::int64_t ranks = 0;
    for (const PartShape& s : c.parts) {
      a.push_back(rig.normal(s.rank * c.inputs, 0.1));
      b.push_back(rig.normal(s.outputs * s.rank, 0.1));
      d_a.push_back(rig.normal(s.rank * c.inputs));
      d_b.push_back(rig.normal(s.outputs * s.rank));
      parts.push_back({.a = rig.put(a.back(), s.type, {s.rank, c.inputs}),
                       .b = rig.put(b.back(), s.type, {s.outputs, s.rank}),
                       .scale = 0.7f + float(parts.size()),
                       .row_begin = s.row_begin,
                       .row_end = s.row_end,
                       .out_column = s.out_column,
                       .v_column = ranks,
                       .d_a = rig.put(d_a.back(), DType::f32, {s.rank, c.inputs}),
                       .d_b = rig.put(d_b.back(), DType::f32, {s.outputs, s.rank}),
                       .dropout_key = 100 + parts.size()});
      ranks += s.rank;
    }
    for (std::int64_t t = 0; t < c.rows; ++t) tokens.push_back(7 * t + 3);
    target = {parts, ranks};
    dropout = {.p = c.p, .seed = 5, .tokens = tokens};
  }
};

// The three ops in double, on what they find.
struct Reference {
  Numbers v, y, d_v, d_x;
  std::vector<Numbers> d_a, d_b;

  Reference(const Case& c, const Parts& p, const Numbers& x, const Numbers& old_y, const Numbers& d_y,
            const Numbers& old_d_x)
      : v(std::size_t(c.rows * p.target.v_width)), y(old_y), d_v(v), d_x(old_d_x), d_a(p.d_a), d_b(p.d_b) {
    for (std::size_t i = 0; i < p.parts.size(); ++i) {
      const LoraPart& part = p.parts[i];
      const std::int64_t R = c.parts[i].rank, N = c.parts[i].outputs, C = c.inputs;
      const DropoutMask mask(p.dropout, part.dropout_key);
      for (std::int64_t t = part.row_begin; t < part.row_end; ++t) {
        const auto at_v = [&](std::int64_t r) {
          return std::size_t(t * p.target.v_width + part.v_column + r);
        };
        const auto at_y = [&](std::int64_t n) { return std::size_t(t * c.width + part.out_column + n); };
        Numbers kept(static_cast<std::size_t>(C));
        for (std::int64_t k = 0; k < C; ++k)
          kept[std::size_t(k)] = mask.active() ? double(mask.factor(p.tokens[std::size_t(t)], k)) : 1.0;
        for (std::int64_t r = 0; r < R; ++r) {
          double sum = 0;
          for (std::int64_t k = 0; k < C; ++k)
            sum += x[std::size_t(t * C + k)] * kept[std::size_t(k)] * p.a[i][std::size_t(r * C + k)];
          v[at_v(r)] = sum;
          for (std::int64_t n = 0; n < N; ++n) {
            const double weight = p.b[i][std::size_t(n * R + r)], d = double(part.scale) * d_y[at_y(n)];
            y[at_y(n)] += double(part.scale) * sum * weight;
            d_b[i][std::size_t(n * R + r)] += d * sum;
            d_v[at_v(r)] += d * weight;
          }
          for (std::int64_t k = 0; k < C; ++k) {
            const double d = d_v[at_v(r)] * kept[std::size_t(k)];
            d_a[i][std::size_t(r * C + k)] += d * x[std::size_t(t * C + k)];
            d_x[std::size_t(t * C + k)] += d * p.a[i][std::size_t(r * C + k)];
          }
        }
      }
    }
  }
};

TEST(LoraOps, EqualTheirFormulas) {
  for (const Case& c : cases()) {
    for (const DType act : kBothTypes) {
      run_case({c.name + ", " + name_text(act), [&](Rig& rig) {
                  Parts p(rig, c);
                  Numbers x = rig.normal(c.rows * c.inputs), old_y = rig.normal(c.rows * c.width),
                          d_y = rig.normal(c.rows * c.width), old_d_x = rig.normal(c.rows * c.inputs);
                  Numbers zero(std::size_t(c.rows * p.target.v_width));  // where there is no part, v stays
                  const Tensor X = rig.put(x, act, {c.rows, c.inputs}),
                               Y = rig.put(old_y, act, {c.rows, c.width});
                  const Tensor D = rig.put(d_y, act, {c.rows, c.width});
                  const Tensor d_x = rig.put(old_d_x, act, {c.rows, c.inputs});
                  const Tensor v = rig.put(zero, DType::f32, {c.rows, p.target.v_width});
                  const Reference right(c, p, x, old_y, d_y, old_d_x);
                  // On tensor cores matrices of f32 enter as two bf16 halves: sixteen bits.
                  const double tolerance = act == DType::f32 || rig.on_cpu() ? 4e-6 : 3e-5;
                  rig.ops().lora_shrink(v, X, p.target, p.dropout);
                  rig.expect("v", v, right.v, tolerance);
                  rig.ops().lora_expand(Y, v, p.target);
                  rig.expect("y", Y, right.y, tolerance);
                  rig.ops().lora_backward(c.wants_d_x ? d_x : Tensor(), D, X, v, p.target, p.dropout);
                  rig.expect("d_v", v, right.d_v, tolerance);
                  rig.expect("d_x", d_x, c.wants_d_x ? right.d_x : old_d_x, tolerance);
                  for (std::size_t i = 0; i < p.parts.size(); ++i) {
                    rig.expect("d_a", p.parts[i].d_a, right.d_a[i], 2 * tolerance);
                    rig.expect("d_b", p.parts[i].d_b, right.d_b[i], 2 * tolerance);
                  }
                }});
    }
  }
}

}  // namespace
}  // namespace slideway
