// Embedding and cross entropy in tiles, against their formulas in double.
#include "rig.h"

namespace slideway {
namespace {

TEST(Embedding, LooksRowsUpAndWidensOrNarrowsThem) {
  for (const DType act : kBothTypes) {
    for (const DType type : kBothTypes) {
      run_case({name_text(type) + " to " + name_text(act), [&](Rig& rig) {
                  const std::int64_t T = 29, V = 11, D = 37;
                  Numbers table = rig.normal(V * D), y;
                  const std::vector<std::int32_t> ids = rig.integers(T, 0, V - 1);
                  const Tensor out = rig.blank(act, {T, D});
                  rig.ops().embed(out, rig.put(table, type, {V, D}), rig.put(ids, {T}));
                  for (const std::int32_t id : ids) {
                    const Numbers row = slice(table, id * D, D);
                    y.insert(y.end(), row.begin(), row.end());
                  }
                  rig.expect("out", out, y, 0);
                }});
    }
  }
}

TEST(Embedding, GradientAddsRowsOfOneIdInOrder) {
  for (const DType act : kBothTypes) {
    run_case({name_text(act), [&](Rig& rig) {
                const std::int64_t T = 40, V = 5, D = 70;
                Numbers table = rig.normal(V * D), d = rig.normal(T * D, 1e3);
                const std::vector<std::int32_t> ids = rig.integers(T, 0, V - 2);
                const Tensor d_table = rig.put(table, DType::f32, {V, D}), d_out = rig.put(d, act, {T, D});
                rig.ops().embed_backward(d_table, d_out, rig.put(ids, {T}));
                for (std::int64_t t = 0; t < T; ++t) {  // in f32, in ascending t: the very same roundings
                  for (std::int64_t i = 0; i < D; ++i) {
                    double& to = table[std::size_t(ids[std::size_t(t)] * D + i)];
                    to = float(to) + float(d[std::size_t(t * D + i)]);
                  }
                }
                EXPECT_EQ(rig.get(d_table), table);
              }});
  }
}

TEST(Embedding, RefusesAnIdOutsideOfTheTable) {
  Rig rig(backends().front());
  Numbers table = rig.normal(8);
  const Tensor T = rig.put(table, DType::f32, {2, 4}), out = rig.blank(DType::f32, {1, 4});
  EXPECT_THROW(rig.ops().embed(out, T, rig.put({2}, {1})), Error);
  EXPECT_THROW(rig.ops().embed(out, T, rig.put({-1}, {1})), Error);
}

struct Loss {
  std::string name;
  std::int64_t T, V, tile;
  double spread;
};
const Loss kLosses[] = {{"one tile", 5, 33, 33, 2},
                        {"tiles that divide the vocabulary", 9, 64, 16, 2},
                        {"a last tile that is short", 17, 100, 48, 2},
                        {"tiles of one", 2, 5, 1, 2},
                        {"logits far apart", 6, 70, 32, 60},
                        {"logits far below zero", 6, 40, 16, 1}};

TEST(CrossEntropy, LossAndGradientDoNotSeeTheTiles) {
  for (const Loss& c : kLosses) {
    for (const DType act : kBothTypes) {
      run_case({c.name + ", " + name_text(act), [&](Rig& rig) {
                  Numbers z = rig.normal(c.T * c.V, c.spread);
                  if (c.name == "logits far below zero") {
                    for (double& x : z) x -= 500;
                  }
                  for (double& x : z) x = float(x);
                  std::vector<std::int32_t> targets = rig.integers(c.T, 0, int(c.V) - 1);
                  targets[1] = -1;
                  const float weight = 0.37f;
                  const Tensor Y = rig.put(targets, {c.T});
                  const Tensor max_sum = rig.blank(DType::f32, {c.T, 2}),
                               at_target = rig.blank(DType::f32, {c.T});
                  const Tensor losses = rig.blank(DType::f32, {c.T});
                  const auto tile_of = [&](const Numbers& x, std::int64_t begin, std::int64_t width) {
                    Numbers tile;
                    for (std::int64_t t = 0; t < c.T; ++t) {
                      const Numbers row = slice(x, t * c.V + begin, width);
                      tile.insert(tile.end(), row.begin(), row.end());
                    }
                    return tile;
                  };
                  std::vector<Tensor> tiles;
                  for (std::int64_t begin = 0; begin < c.V; begin += c.tile) {
                    const std::int64_t width = std::min(c.tile, c.V - begin);
                    Numbers part = tile_of(z, begin, width);
                    tiles.push_back(rig.put(part, DType::f32, {c.T, width}));
                    rig.ops().cross_entropy_tile(max_sum, at_target, tiles.back(), Y, begin);
                  }
                  rig.ops().cross_entropy_loss(losses, max_sum, at_target, Y);

                  Numbers right(std::size_t(c.T)), d(z.size());
                  for (std::int64_t t = 0; t < c.T; ++t) {
                    const std::int32_t target = targets[std::size_t(t)];
                    if (target < 0) continue;
                    const Numbers row = slice(z, t * c.V, c.V);
                    const double m = *std::max_element(row.begin(), row.end());
                    double s = 0;
                    for (const double x : row) s += std::exp(x - m);
                    right[std::size_t(t)] = m + std::log(s) - row[std::size_t(target)];
                    for (std::int64_t j = 0; j < c.V; ++j) {
                      d[std::size_t(t * c.V + j)] =
                          weight * (std::exp(row[std::size_t(j)] - m) / s - (j == target));
                    }
                  }
                  // The loss is a difference of logits, so that their size is what it is exact to.
                  rig.expect("losses", losses, right, 3e-7,
                             *std::max_element(z.begin(), z.end()) > 0 ? c.spread * 4 : 500);
                  std::size_t i = 0;
                  for (std::int64_t begin = 0; begin < c.V; begin += c.tile) {
                    const Tensor logits = tiles[i++];
                    const Tensor d_logits =
                        act == DType::f32 ? logits : rig.blank(act, {c.T, logits.size(1)});
                    rig.ops().cross_entropy_backward(d_logits, logits, max_sum, Y, begin, weight);
                    rig.expect("d_logits", d_logits, tile_of(d, begin, logits.size(1)), 2e-6, weight);
                  }
                }});
    }
  }
}

}  // namespace
}  // namespace slideway
