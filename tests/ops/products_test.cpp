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

// Edges of the tiles (128 rows, 512 columns, 256 × 256 of weights, 1024 rows a sum), odd sizes, single rows and columns.
std::vector<Product> products() {
  std::vector<Product> all;
  for (const auto [T, N, C] : {std::array<std::int64_t, 3>{1, 64, 32},
                               {5, 7, 3},
                               {1, 1, 1},
                               {131, 97, 70},
                               {128, 520, 64},
                               {200, 640, 48},
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

TEST(Products, LinearIsRowTimesRowOfWeights) {
  for (const Product& p : products()) {
    run_case({p.name(), [&](Rig& rig) {
                Numbers x = rig.normal(p.T * p.C), w = rig.normal(p.N * p.C), b = rig.normal(p.N);
                const Tensor X = rig.put(x, p.act, {p.T, p.C}), W = rig.put(w, p.weight, {p.N, p.C});
                const Tensor B = p.bias ? rig.put(b, p.weight, {p.N}) : Tensor();
                const Tensor out = rig.blank(p.out, {p.T, p.N});
                rig.ops().linear(out, X, W, B);
                Numbers y(std::size_t(p.T * p.N));
                for (std::int64_t t = 0; t < p.T; ++t) {
                  for (std::int64_t n = 0; n < p.N; ++n) {
                    double sum = p.bias ? b[std::size_t(n)] : 0;
                    for (std::int64_t c = 0; c < p.C; ++c)
                      sum += x[std::size_t(t * p.C + c)] * w[std::size_t(n * p.C + c)];
                    y[std::size_t(t * p.N + n)] = sum;
                  }
                }
                rig.expect("out", out, y, 2e-6, std::sqrt(double(p.C)) * 4);
              }});
  }
}

TEST(Products, GradientOfTheInputIsAddedOrWritten) {
  for (const Product& p : products()) {
    for (const bool accumulate : {false, true}) {
      run_case({p.name() + (accumulate ? ", added" : ", written"), [&](Rig& rig) {
                  Numbers d = rig.normal(p.T * p.N), w = rig.normal(p.N * p.C),
                          before = rig.normal(p.T * p.C);
                  const Tensor D = rig.put(d, p.act, {p.T, p.N}), W = rig.put(w, p.weight, {p.N, p.C});
                  const Tensor d_x =
                      accumulate ? rig.put(before, p.out, {p.T, p.C}) : rig.blank(p.out, {p.T, p.C});
                  rig.ops().linear_backward_input(d_x, D, W, accumulate);
                  Numbers y(std::size_t(p.T * p.C));
                  for (std::int64_t t = 0; t < p.T; ++t) {
                    for (std::int64_t c = 0; c < p.C; ++c) {
                      double sum = accumulate ? before[std::size_t(t * p.C + c)] : 0;
                      for (std::int64_t n = 0; n < p.N; ++n)
                        sum += d[std::size_t(t * p.N + n)] * w[std::size_t(n * p.C + c)];
                      y[std::size_t(t * p.C + c)] = sum;
                    }
                  }
                  rig.expect("d_x", d_x, y, 2e-6, std::sqrt(double(p.N)) * 4);
                }});
    }
  }
}

TEST(Products, GradientsOfWeightAndBiasAreAdded) {
  for (const Product& p : products()) {
    if (p.out != p.act) continue;
    run_case({p.name(), [&](Rig& rig) {
                Numbers d = rig.normal(p.T * p.N), x = rig.normal(p.T * p.C), w = rig.normal(p.N * p.C),
                        b = rig.normal(p.N);
                const Tensor D = rig.put(d, p.act, {p.T, p.N}), X = rig.put(x, p.act, {p.T, p.C});
                const Tensor d_w = rig.put(w, DType::f32, {p.N, p.C});
                const Tensor d_b = p.bias ? rig.put(b, DType::f32, {p.N}) : Tensor();
                rig.ops().linear_backward_weight(d_w, d_b, D, X);
                for (std::int64_t t = 0; t < p.T; ++t) {
                  for (std::int64_t n = 0; n < p.N; ++n) {
                    const double g = d[std::size_t(t * p.N + n)];
                    b[std::size_t(n)] += g;
                    for (std::int64_t c = 0; c < p.C; ++c)
                      w[std::size_t(n * p.C + c)] += g * x[std::size_t(t * p.C + c)];
                  }
                }
                rig.expect("d_w", d_w, w, 2e-6, std::sqrt(double(p.T)) * 4);
                if (p.bias) rig.expect("d_bias", d_b, b, 2e-6, std::sqrt(double(p.T)) * 4);
              }});
  }
}

}  // namespace
}  // namespace slideway
