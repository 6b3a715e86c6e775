// SwiGLU, against its formula and that formula's differences in double.
#include "rig.h"

namespace slideway {
namespace {

double silu_times(double gate, double up) {
  return gate / (1 + std::exp(-gate)) * up;
}

struct Rows {
  std::int64_t T, F;
};
constexpr Rows kRows[] = {{1, 1}, {1, 33}, {17, 48}, {64, 100}};

TEST(Swiglu, IsSiluOfTheGateTimesUp) {
  for (const auto [T, F] : kRows) {
    for (const DType act : kBothTypes) {
      run_case(
          {std::to_string(T) + "x" + std::to_string(F) + " " + name_text(act), [&, T = T, F = F](Rig& rig) {
             Numbers x = rig.normal(T * 2 * F, 4), y;
             x[0] = 30;
             const Tensor gate_up = rig.put(x, act, {T, 2 * F}), out = rig.blank(act, {T, F});
             rig.ops().swiglu(out, gate_up);
             for (std::int64_t t = 0; t < T; ++t) {
               for (std::int64_t i = 0; i < F; ++i) {
                 y.push_back(silu_times(x[std::size_t(t * 2 * F + i)], x[std::size_t(t * 2 * F + F + i)]));
               }
             }
             rig.expect("out", out, y, 3e-7);
           }});
    }
  }
}

TEST(Swiglu, GradientReachesGateAndUp) {
  for (const auto [T, F] : kRows) {
    for (const DType act : kBothTypes) {
      run_case(
          {std::to_string(T) + "x" + std::to_string(F) + " " + name_text(act), [&, T = T, F = F](Rig& rig) {
             Numbers x = rig.normal(T * 2 * F, 3), d = rig.normal(T * F), dx(x.size());
             const Tensor gate_up = rig.put(x, act, {T, 2 * F}), d_out = rig.put(d, act, {T, F});
             const Tensor d_gate_up = rig.blank(act, {T, 2 * F});
             rig.ops().swiglu_backward(d_gate_up, d_out, gate_up);
             for (std::int64_t t = 0; t < T; ++t) {
               for (std::int64_t i = 0; i < F; ++i) {
                 const std::size_t gate = std::size_t(t * 2 * F + i), up = gate + std::size_t(F);
                 const Numbers d_pair = differences(
                     [&](const Numbers& at) { return silu_times(at[0], at[1]) * d[std::size_t(t * F + i)]; },
                     {x[gate], x[up]});
                 dx[gate] = d_pair[0];
                 dx[up] = d_pair[1];
               }
             }
             rig.expect("d_gate_up", d_gate_up, dx, 1e-6);
           }});
    }
  }
}

TEST(Swiglu, IsZeroOrTheGateItselfFarFromZero) {
  run_case({"far", [](Rig& rig) {
              Numbers x = {-1000, -90, 1000, 90, -1e30, 1e30, 1, 1, 1, 1, 1, 1};
              const Tensor out = rig.blank(DType::f32, {1, 6});
              rig.ops().swiglu(out, rig.put(x, DType::f32, {1, 12}));
              const Numbers y = rig.get(out);
              for (const int i : {0, 1}) EXPECT_NEAR(y[std::size_t(i)], 0, 1e-34) << i;
              for (const int i : {2, 3, 5}) EXPECT_EQ(y[std::size_t(i)], x[std::size_t(i)]) << i;
            }});
}

}  // namespace
}  // namespace slideway
