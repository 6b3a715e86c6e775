// RMS norm over rows and over heads, against its formula and that formula's differences in double.
#include "rig.h"

namespace slideway {
namespace {

constexpr double kEps = 1e-5;

double rstd_of(const Numbers& x) {
  return 1 / std::sqrt(dot(x, x) / double(x.size()) + kEps);
}

Numbers normed(const Numbers& x, const Numbers& weight) {
  Numbers y(x.size());
  const double rstd = rstd_of(x);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * rstd * weight[i];
  return y;
}

// Gradients of Σ d_out · normed(x, weight).
Numbers d_input(const Numbers& x, const Numbers& weight, const Numbers& d_out) {
  return differences([&](const Numbers& at) { return dot(normed(at, weight), d_out); }, x);
}
Numbers d_weights(const Numbers& x, const Numbers& weight, const Numbers& d_out) {
  return differences([&](const Numbers& at) { return dot(normed(x, at), d_out); }, weight);
}

void add(Numbers& to, std::int64_t begin, const Numbers& x) {
  for (std::size_t i = 0; i < x.size(); ++i) to[std::size_t(begin) + i] += x[i];
}

struct Rows {
  std::int64_t T, D;
};
constexpr Rows kRows[] = {{1, 1}, {1, 16}, {3, 17}, {70, 40}, {130, 7}, {2, 576}, {1, 2056}};

std::string name(std::int64_t T, std::int64_t D, DType act, DType weight) {
  return std::to_string(T) + "x" + std::to_string(D) + " " + name_text(act) + ", weight " + name_text(weight);
}

void for_types(const std::function<void(DType, DType)>& body) {
  for (const DType act : kBothTypes) {
    for (const DType weight : kBothTypes) body(act, weight);
  }
}

TEST(RmsNorm, DividesARowByItsRootMeanSquare) {
  for (const auto [T, D] : kRows) {
    for_types([&, T = T, D = D](DType act, DType type) {
      run_case({name(T, D, act, type), [&](Rig& rig) {
                  Numbers x = rig.normal(T * D), w = rig.normal(D), y, r;
                  const Tensor X = rig.put(x, act, {T, D}), W = rig.put(w, type, {D});
                  const Tensor out = rig.blank(act, {T, D}), rstd = rig.blank(DType::f32, {T});
                  rig.ops().rms_norm(out, rstd, X, W, float(kEps));
                  for (std::int64_t t = 0; t < T; ++t) {
                    const Numbers row = slice(x, t * D, D), to = normed(row, w);
                    y.insert(y.end(), to.begin(), to.end());
                    r.push_back(rstd_of(row));
                  }
                  rig.expect("out", out, y, 1e-6);
                  rig.expect("rstd", rstd, r, 1e-6);
                }});
    });
  }
}

TEST(RmsNorm, AddsItsGradients) {
  for (const auto [T, D] : kRows) {
    for_types([&, T = T, D = D](DType act, DType type) {
      run_case({name(T, D, act, type), [&](Rig& rig) {
                  Numbers x = rig.normal(T * D), w = rig.normal(D), d = rig.normal(T * D), r;
                  Numbers dx = rig.normal(T * D), dw = rig.normal(D);
                  const Tensor X = rig.put(x, act, {T, D}), W = rig.put(w, type, {D}),
                               d_out = rig.put(d, act, {T, D});
                  const Tensor d_x = rig.put(dx, act, {T, D}), d_weight = rig.put(dw, DType::f32, {D});
                  for (std::int64_t t = 0; t < T; ++t) {
                    const Numbers row = slice(x, t * D, D), d_row = slice(d, t * D, D);
                    r.push_back(rstd_of(row));
                    add(dx, t * D, d_input(row, w, d_row));
                    add(dw, 0, d_weights(row, w, d_row));
                  }
                  const Tensor rstd = rig.put(r, DType::f32, {T});
                  rig.ops().rms_norm_backward(d_x, d_weight, d_out, X, W, rstd);
                  rig.expect("d_x", d_x, dx, 2e-6);
                  rig.expect("d_weight", d_weight, dw, 2e-6);
                }});
    });
  }
}

TEST(RmsNorm, LeavesAGradientOutThatIsNotWanted) {
  run_case({"no d_weight", [](Rig& rig) {
              Numbers x = rig.normal(32), w = rig.normal(16), d = rig.normal(32), dx(32), r;
              for (int t = 0; t < 2; ++t) r.push_back(rstd_of(slice(x, 16 * t, 16)));
              const Tensor d_x = rig.put(dx, DType::f32, {2, 16});
              rig.ops().rms_norm_backward(d_x, {}, rig.put(d, DType::f32, {2, 16}),
                                          rig.put(x, DType::f32, {2, 16}), rig.put(w, DType::f32, {16}),
                                          rig.put(r, DType::f32, {2}));
              for (int t = 0; t < 2; ++t)
                add(dx, 16 * t, d_input(slice(x, 16 * t, 16), w, slice(d, 16 * t, 16)));
              rig.expect("d_x", d_x, dx, 2e-6);
            }});
}

constexpr Heads kHeads[] = {{1, 1, 16}, {4, 2, 8}, {3, 1, 20}, {2, 2, 64}, {3, 1, 128}};

TEST(HeadNorm, NormsQueriesAndKeysAndCopiesValues) {
  for (const Heads& heads : kHeads) {
    for_types([&](DType act, DType type) {
      constexpr std::int64_t T = 19;
      const std::int64_t E = heads.width, count = heads.query + heads.key_value;
      run_case({name(T, E, act, type), [&](Rig& rig) {
                  Numbers x = rig.normal(T * heads.row()), qw = rig.normal(E), kw = rig.normal(E), y, r;
                  const Tensor qkv = rig.put(x, act, {T, heads.row()}),
                               out = rig.blank(act, {T, heads.row()});
                  const Tensor rstd = rig.blank(DType::f32, {T, count});
                  rig.ops().head_norm(out, rstd, qkv, heads, rig.put(qw, type, {E}), rig.put(kw, type, {E}),
                                      float(kEps));
                  for (std::int64_t t = 0; t < T; ++t) {
                    for (std::int64_t h = 0; h < count + heads.key_value; ++h) {
                      const Numbers head = slice(x, t * heads.row() + h * E, E);
                      const Numbers to = h >= count ? head : normed(head, h < heads.query ? qw : kw);
                      y.insert(y.end(), to.begin(), to.end());
                      if (h < count) r.push_back(rstd_of(head));
                    }
                  }
                  rig.expect("out", out, y, 1e-6);
                  rig.expect("rstd", rstd, r, 1e-6);
                }});
    });
  }
}

TEST(HeadNorm, TurnsTheGradientOfItsOutputIntoThatOfItsInput) {
  for (const Heads& heads : kHeads) {
    for_types([&](DType act, DType type) {
      constexpr std::int64_t T = 67;
      const std::int64_t E = heads.width, count = heads.query + heads.key_value, row = heads.row();
      run_case({name(T, E, act, type), [&](Rig& rig) {
                  Numbers x = rig.normal(T * row), d = rig.normal(T * row), qw = rig.normal(E),
                          kw = rig.normal(E), r;
                  Numbers dq = rig.normal(E), dk = rig.normal(E);
                  const Tensor qkv = rig.put(x, act, {T, row}), d_qkv = rig.put(d, act, {T, row});
                  const Tensor q_weight = rig.put(qw, type, {E}), k_weight = rig.put(kw, type, {E});
                  const Tensor d_q = rig.put(dq, DType::f32, {E}), d_k = rig.put(dk, DType::f32, {E});
                  for (std::int64_t t = 0; t < T; ++t) {
                    for (std::int64_t h = 0; h < count; ++h) {
                      const std::int64_t at = t * row + h * E;
                      const Numbers head = slice(x, at, E), d_head = slice(d, at, E);
                      const Numbers& w = h < heads.query ? qw : kw;
                      add(h < heads.query ? dq : dk, 0, d_weights(head, w, d_head));
                      const Numbers d_x = d_input(head, w, d_head);
                      std::copy(d_x.begin(), d_x.end(), d.begin() + at);
                      r.push_back(rstd_of(head));
                    }
                  }
                  const Tensor rstd = rig.put(r, DType::f32, {T, count});
                  rig.ops().head_norm_backward(d_qkv, d_q, d_k, qkv, rstd, heads, q_weight, k_weight);
                  rig.expect("d_qkv", d_qkv, d, 2e-6);
                  rig.expect("d_q_weight", d_q, dq, 2e-6);
                  rig.expect("d_k_weight", d_k, dk, 2e-6);
                }});
    });
  }
}

}  // namespace
}  // namespace slideway
