// Attention and its gradient, against softmax written out in double.
#include "rig.h"

namespace slideway {
namespace {

struct Case {
  std::string name;
  std::vector<std::int32_t> starts;
  Heads heads;
  int window;
  float scale = 0;  // 0: 1 / sqrt(E)
  double spread = 1;
  std::int64_t T() const { return starts.back(); }
  float factor() const { return scale != 0 ? scale : 1 / std::sqrt(float(heads.width)); }
};

const Case kCases[] = {
    {"one token", {0, 1}, {1, 1, 16}, 0},
    {"two tokens, odd width", {0, 2}, {2, 1, 5}, 0},
    {"several sequences, one of them empty", {0, 3, 3, 20, 21}, {4, 2, 8}, 0},
    {"query heads that are no power of two", {0, 70, 201}, {9, 3, 64}, 0},
    {"more keys than a tile", {0, 300}, {2, 1, 24}, 0},
    {"as many heads as key-value heads", {0, 260}, {3, 3, 40}, 0},
    {"a group larger than a tile's rows", {0, 50}, {16, 1, 16}, 0},
    {"a window of one", {0, 40}, {2, 2, 16}, 1},
    {"a window within a tile", {0, 150, 170}, {2, 1, 16}, 7},
    {"a window longer than a tile", {0, 400}, {2, 1, 16}, 200},
    {"a window longer than the sequence", {0, 33}, {2, 1, 16}, 100},
    {"wide heads", {0, 37}, {2, 1, 256}, 0},
    {"many tiles, and rows that end within one", {0, 130, 391, 392}, {4, 2, 128}, 0},
    {"a window over many tiles", {0, 300, 513}, {2, 1, 64}, 70},
    {"a width between those of tensor cores", {0, 140}, {4, 1, 96}, 0},
    {"scores far apart", {0, 150}, {2, 1, 16}, 0, 0.5f, 2},
};

// What both directions compute, head by head in double.
struct Reference {
  Numbers out, lse, d_qkv;
};

Reference reference(const Case& c, const Numbers& qkv, const Numbers& d_out) {
  const auto [H, K, E] = c.heads;
  const std::int64_t T = c.T(), row = c.heads.row();
  Reference r{Numbers(std::size_t(T * H * E)), Numbers(std::size_t(H * T)), Numbers(std::size_t(T * row))};
  for (std::size_t n = 0; n + 1 < c.starts.size(); ++n) {
    for (int h = 0; h < H; ++h) {
      const int kv = h / (H / K);
      const auto q = [&](std::int64_t t) { return std::size_t(t * row + h * E); };
      const auto k = [&](std::int64_t t) { return std::size_t(t * row + (H + kv) * E); };
      const auto v = [&](std::int64_t t) { return std::size_t(t * row + (H + K + kv) * E); };
      for (std::int64_t t = c.starts[n]; t < c.starts[n + 1]; ++t) {
        const std::int64_t first =
            c.window > 0 ? std::max<std::int64_t>(c.starts[n], t - c.window + 1) : c.starts[n];
        Numbers p(std::size_t(t + 1 - first));
        double most = -1e300, sum = 0;
        for (std::int64_t s = first; s <= t; ++s) {
          double dot = 0;
          for (int e = 0; e < E; ++e) dot += qkv[q(t) + std::size_t(e)] * qkv[k(s) + std::size_t(e)];
          p[std::size_t(s - first)] = dot * c.factor();
          most = std::max(most, dot * c.factor());
        }
        for (double& x : p) sum += x = std::exp(x - most);
        r.lse[std::size_t(h * T + t)] = most + std::log(sum);
        const std::size_t o = std::size_t((t * H + h) * E);
        for (std::int64_t s = first; s <= t; ++s) {
          p[std::size_t(s - first)] /= sum;
          for (int e = 0; e < E; ++e)
            r.out[o + std::size_t(e)] += p[std::size_t(s - first)] * qkv[v(s) + std::size_t(e)];
        }
        double dot = 0;
        for (int e = 0; e < E; ++e) dot += d_out[o + std::size_t(e)] * r.out[o + std::size_t(e)];
        for (std::int64_t s = first; s <= t; ++s) {
          double d_p = 0;
          for (int e = 0; e < E; ++e) d_p += d_out[o + std::size_t(e)] * qkv[v(s) + std::size_t(e)];
          const double weight = p[std::size_t(s - first)], d_score = weight * (d_p - dot) * c.factor();
          for (int e = 0; e < E; ++e) {
            const auto i = std::size_t(e);
            r.d_qkv[v(s) + i] += weight * d_out[o + i];
            r.d_qkv[q(t) + i] += d_score * qkv[k(s) + i];
            r.d_qkv[k(s) + i] += d_score * qkv[q(t) + i];
          }
        }
      }
    }
  }
  return r;
}

TEST(Attention, IsTheSoftmaxOfItsFormulaAndItsGradient) {
  for (const Case& c : kCases) {
    for (const DType act : kBothTypes) {
      run_case({c.name + ", " + name_text(act), [&](Rig& rig) {
                  const std::int64_t T = c.T(), row = c.heads.row(),
                                     width = std::int64_t(c.heads.query) * c.heads.width;
                  Numbers qkv = rig.normal(T * row, c.spread), d_out = rig.normal(T * width);
                  const Tensor QKV = rig.put(qkv, act, {T, row}), D = rig.put(d_out, act, {T, width});
                  const Tensor out = rig.blank(act, {T, width}),
                               lse = rig.blank(DType::f32, {c.heads.query, T});
                  const Tensor d_qkv = rig.blank(act, {T, row});
                  const Sequences sequences{c.starts, c.window};
                  const Reference right = reference(c, qkv, d_out);
                  rig.ops().attention(out, lse, QKV, c.heads, sequences, c.factor());
                  // On tensor cores weights are rounded to bf16 before they meet the values.
                  const bool exact = act == DType::f32 || rig.on_cpu();
                  rig.expect("out", out, right.out, exact ? 2e-6 : 4e-3);
                  rig.expect("lse", lse, right.lse, 1e-6);
                  rig.ops().attention_backward(d_qkv, D, out, lse, QKV, c.heads, sequences, c.factor());
                  // out is rounded where act is bf16, and so is the dot product that softmax's gradient starts from.
                  rig.expect("d_qkv", d_qkv, right.d_qkv, act == DType::f32 ? 5e-6 : exact ? 4e-3 : 8e-3);
                }});
    }
  }
}

// The formula itself: its gradient against differences of its own sums.
TEST(Attention, ReferenceGradientIsThatOfItsForward) {
  const Case c{"small", {0, 2, 9}, {4, 2, 6}, 4};
  Rig rig(backends().front());
  Numbers qkv = rig.normal(c.T() * c.heads.row());
  const Numbers d_out = rig.normal(c.T() * c.heads.query * c.heads.width);
  const Reference r = reference(c, qkv, d_out);
  const auto loss = [&] {
    const Reference at = reference(c, qkv, d_out);
    double sum = 0;
    for (std::size_t i = 0; i < at.out.size(); ++i) sum += at.out[i] * d_out[i];
    return sum;
  };
  for (std::size_t i = 0; i < qkv.size(); i += 5) {
    const double x = qkv[i], h = 1e-5;
    qkv[i] = x + h;
    const double up = loss();
    qkv[i] = x - h;
    const double down = loss();
    qkv[i] = x;
    EXPECT_NEAR(r.d_qkv[i], (up - down) / (2 * h), 1e-7) << i;
  }
}

}  // namespace
}  // namespace slideway
