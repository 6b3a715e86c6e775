// Rotary positions, against the rotation written out in double from the angle rounded to f32.
#include "rig.h"

namespace slideway {
namespace {

Numbers frequencies(std::int64_t half) {
  Numbers f;
  for (std::int64_t i = 0; i < half; ++i) f.push_back(std::pow(100000.0, -double(i) / double(half)));
  return f;
}

Numbers turned(Numbers x, const Heads& heads, const std::vector<std::int32_t>& positions,
               const Numbers& inv_freq, double factor, bool backward) {
  const std::int64_t half = heads.width / 2;
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::int64_t h = 0; h < heads.query + heads.key_value; ++h) {
      double* const head = x.data() + std::int64_t(t) * heads.row() + h * heads.width;
      for (std::int64_t i = 0; i < half; ++i) {
        const float angle = float(positions[t]) * float(inv_freq[std::size_t(i)]);
        const double c = std::cos(double(angle)) * factor,
                     s = std::sin(double(angle)) * factor * (backward ? -1 : 1);
        const double a = head[i], b = head[half + i];
        head[i] = a * c - b * s;
        head[half + i] = b * c + a * s;
      }
    }
  }
  return x;
}

constexpr Heads kHeads[] = {{1, 1, 2}, {9, 3, 64}, {2, 1, 10}, {4, 4, 80}};

TEST(Rope, TurnsQueriesAndKeysByPositionAndTurnsBack) {
  for (const Heads& heads : kHeads) {
    for (const DType act : kBothTypes) {
      for (const bool backward : {false, true}) {
        run_case({std::to_string(heads.width) + " wide, " + name_text(act) + (backward ? ", back" : ""),
                  [&](Rig& rig) {
                    const std::int64_t T = 37, row = heads.row(), half = heads.width / 2;
                    Numbers x = rig.normal(T * row), f = frequencies(half);
                    std::vector<std::int32_t> positions = rig.integers(T, 0, 131071);
                    positions[0] = 0;
                    const Tensor qkv = rig.put(x, act, {T, row}), inv_freq = rig.put(f, DType::f32, {half});
                    rig.ops().rope(qkv, heads, rig.put(positions, {T}), inv_freq, 1.2f, backward);
                    rig.expect("qkv", qkv, turned(x, heads, positions, f, 1.2f, backward), 4e-7);
                  }});
      }
    }
  }
}

// The table of angles is kept between calls; it must not be kept when anything it is made of changes in place.
TEST(Rope, NoticesThatPositionsFrequenciesOrFactorChanged) {
  run_case({"changes", [](Rig& rig) {
              const Heads heads{2, 1, 8};
              Numbers x = rig.normal(3 * heads.row()), f = frequencies(4), g = {1, 0.5, 0.25, 0.125};
              const std::vector<std::int32_t> first = {0, 1, 2}, then = {7, 8, 9};
              const Tensor qkv = rig.put(x, DType::f32, {3, heads.row()});
              const Tensor F = rig.put(f, DType::f32, {4}), G = rig.put(g, DType::f32, {4});
              const Tensor P = rig.put(first, {3}), Q = rig.put(then, {3});
              const auto turn = [&](const Tensor& positions, const std::vector<std::int32_t>& p,
                                    const Tensor& inv_freq, const Numbers& freq, float factor) {
                rig.ops().rope(qkv, heads, positions, inv_freq, factor, false);
                x = turned(x, heads, p, freq, factor, false);
                rig.expect("qkv", qkv, x, 1e-6);
              };
              turn(P, first, F, f, 1);
              turn(P, first, F, f, 1);
              turn(Q, then, F, f, 1);
              turn(Q, then, G, g, 1);
              turn(Q, then, G, g, 0.5f);
            }});
}

}  // namespace
}  // namespace slideway
