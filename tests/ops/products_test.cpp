// Products in training, against sums in double.
#include "rig.h"

namespace slideway {
namespace {

struct Product {
  std::int64_t T, N, C;
  DType act, weight, out;
  bool bias;
  std::string name() const {
    return std::to_string(T) + "x" + std::to_string(N) + "x" + std::to_string(C) + " " + name_text(act) +
           " by " + name_text(weight) + " to " + name_text(out) + (bias ? " with bias" : "");
  }
};

// Edges of the tiles (512 rows, 128 or 512 columns, 1024 rows a sum), odd sizes, single rows and columns.
std::vector<Product> products() {
  std::vector<Product> all;
  for (const auto [T, N, C] : {std::array<std::int64_t, 3>{1, 64, 32},
                               {5, 7, 3},
                               {1, 1, 1},
                               {131, 97, 70},
                               {128, 520, 64},
                               {300, 640, 48},
                               {1030, 33, 17},
                               {16, 48, 1100},
                               {3, 1100, 600}}) {
    for (const DType act : kBothTypes) {
      for (const DType weight : kBothTypes) {
        all.push_back({T, N, C, act, weight, act, T % 2 == 1});
        if (act == DType::bf16) all.push_back({T, N, C, act, weight, DType::f32, T % 2 == 0});
      }
    }
  }
  return all;
}

// A matrix whose element (r, c) is at x[r · row + c · column].
struct View {
  const Numbers& x;
  std::int64_t row, column;
  double at(std::int64_t r, std::int64_t c) const { return x[std::size_t(r * row + c * column)]; }
};

// y [m, n] += a · b, over k
void add_product(Numbers& y, std::int64_t m, std::int64_t n, std::int64_t k, View a, View b) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      for (std::int64_t j = 0; j < n; ++j) y[std::size_t(i * n + j)] += a.at(i, l) * b.at(l, j);
    }
  }
}

// Numbers are about 1, so a sum of k products is about sqrt(k), and passes through partial sums a few times that.
double size_of_sum(std::int64_t k) {
  return 4 * std::sqrt(double(k));
}
constexpr double kTolerance = 2e-6;

// The library rounds a bf16 product before a bias or what was there is added to it: once more, half a unit of the product.
double tolerance(Rig& rig, DType out, bool added) {
  return kTolerance + (!rig.on_cpu() && out == DType::bf16 && added ? 0x1p-8 : 0);
}

TEST(Products, LinearIsRowTimesRowOfWeights) {
  for (const Product& p : products()) {
    Numbers y;  // computed once: every backend draws the same numbers
    run_case({p.name(), [&](Rig& rig) {
                Numbers x = rig.normal(p.T * p.C), w = rig.normal(p.N * p.C), b = rig.normal(p.N);
                const Tensor X = rig.put(x, p.act, {p.T, p.C}), W = rig.put(w, p.weight, {p.N, p.C});
                const Tensor B = p.bias ? rig.put(b, p.weight, {p.N}) : Tensor();
                const Tensor out = rig.blank(p.out, {p.T, p.N});
                rig.ops().linear(out, X, W, B);
                if (y.empty()) {
                  y.resize(std::size_t(p.T * p.N));
                  for (std::size_t i = 0; p.bias && i < y.size(); ++i) y[i] = b[i % std::size_t(p.N)];
                  add_product(y, p.T, p.N, p.C, {x, p.C, 1}, {w, 1, p.C});
                }
                rig.expect("out", out, y, tolerance(rig, p.out, p.bias), size_of_sum(p.C));
              }});
  }
}

TEST(Products, GradientOfTheInputIsAddedOrWritten) {
  for (const Product& p : products()) {
    for (const bool accumulate : {false, true}) {
      Numbers y;
      run_case({p.name() + (accumulate ? ", added" : ", written"), [&](Rig& rig) {
                  Numbers d = rig.normal(p.T * p.N), w = rig.normal(p.N * p.C),
                          before = rig.normal(p.T * p.C);
                  const Tensor D = rig.put(d, p.act, {p.T, p.N}), W = rig.put(w, p.weight, {p.N, p.C});
                  const Tensor d_x =
                      accumulate ? rig.put(before, p.out, {p.T, p.C}) : rig.blank(p.out, {p.T, p.C});
                  rig.ops().linear_backward_input(d_x, D, W, accumulate);
                  if (y.empty()) {
                    y = accumulate ? before : Numbers(before.size());
                    add_product(y, p.T, p.C, p.N, {d, p.N, 1}, {w, p.C, 1});
                  }
                  rig.expect("d_x", d_x, y, tolerance(rig, p.out, accumulate), size_of_sum(p.N));
                }});
    }
  }
}

TEST(Products, GradientsOfWeightAndBiasAreAdded) {
  for (const Product& p : products()) {
    if (p.out != p.act) continue;
    Numbers y, y_bias;
    run_case({p.name(), [&](Rig& rig) {
                Numbers d = rig.normal(p.T * p.N), x = rig.normal(p.T * p.C), w = rig.normal(p.N * p.C),
                        b = rig.normal(p.N);
                const Tensor D = rig.put(d, p.act, {p.T, p.N}), X = rig.put(x, p.act, {p.T, p.C});
                const Tensor d_w = rig.put(w, DType::f32, {p.N, p.C});
                const Tensor d_b = p.bias ? rig.put(b, DType::f32, {p.N}) : Tensor();
                rig.ops().linear_backward_weight(d_w, d_b, D, X);
                if (y.empty()) {
                  y = w;
                  y_bias = b;
                  add_product(y, p.N, p.C, p.T, {d, 1, p.N}, {x, p.C, 1});
                  add_product(y_bias, 1, p.N, p.T, {Numbers(std::size_t(p.T), 1.0), 0, 1}, {d, p.N, 1});
                }
                rig.expect("d_w", d_w, y, kTolerance, size_of_sum(p.T));
                if (p.bias) rig.expect("d_bias", d_b, y_bias, kTolerance, size_of_sum(p.T));
              }});
  }
}

}  // namespace
}  // namespace slideway
