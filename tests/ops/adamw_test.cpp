// AdamW: the scalar form against its formula in f64 and against numbers of torch.optim.AdamW; every other form against the
// scalar one, bit for bit.
#include "ops/adamw.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace slideway {
namespace {

// A range with its memory, guarded at both ends by numbers that must not change.
struct State {
  static constexpr std::size_t kGuard = 19;
  std::vector<bf16_t> hi;
  std::vector<std::int16_t> lo;
  std::vector<float> m, v, grad_f32;
  std::vector<bf16_t> grad_bf16;
  std::size_t n = 0;

  explicit State(std::size_t count) : n(count) {
    const std::size_t all = n + 2 * kGuard;
    hi.assign(all, 0x1234);
    lo.assign(all, 0x2345);
    m.assign(all, 0x1.8p9f);
    v.assign(all, 0x1.8p11f);
    grad_f32.assign(all, 0x1.8p7f);
    grad_bf16.assign(all, 0x3456);
  }
  AdamwRange range(DType grad_type) {
    const void* grad = grad_type == DType::f32 ? static_cast<const void*>(grad_f32.data() + kGuard)
                                               : static_cast<const void*>(grad_bf16.data() + kGuard);
    return {hi.data() + kGuard, lo.data() + kGuard, m.data() + kGuard, v.data() + kGuard, grad,
            grad_type,          std::int64_t(n)};
  }
  void set(std::size_t i, float weight, float mean, float square, float grad) {
    const Split parts = split(weight);
    hi[kGuard + i] = parts.hi;
    lo[kGuard + i] = parts.lo;
    m[kGuard + i] = mean;
    v[kGuard + i] = square;
    grad_f32[kGuard + i] = grad;
    grad_bf16[kGuard + i] = to_bf16(grad);
  }
  float weight(std::size_t i) const { return join(hi[kGuard + i], lo[kGuard + i]); }
  bool same_bits(const State& other) const {
    return hi == other.hi && lo == other.lo && std::memcmp(m.data(), other.m.data(), m.size() * 4) == 0 &&
           std::memcmp(v.data(), other.v.data(), v.size() * 4) == 0;
  }
};

const std::vector<float>& strange_numbers() {
  static const std::vector<float> numbers = {0.f,
                                             -0.f,
                                             1.f,
                                             -1.f,
                                             0x1p-149f,
                                             -0x1p-149f,
                                             0x1p-130f,
                                             -0x1.8p-127f,
                                             0x1p-126f,
                                             1e-38f,
                                             1e-20f,
                                             -1e-20f,
                                             1e19f,
                                             -1e20f,
                                             std::numeric_limits<float>::max(),
                                             -std::numeric_limits<float>::max(),
                                             std::numeric_limits<float>::infinity(),
                                             -std::numeric_limits<float>::infinity(),
                                             std::numeric_limits<float>::quiet_NaN(),
                                             std::bit_cast<float>(0xffc01234u),
                                             std::bit_cast<float>(0x7f800001u)};
  return numbers;
}

State ordinary(std::size_t n) {
  State state(n);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < n; ++i) {
    const float mean = 1e-3f * normal(random), square = 1e-6f * normal(random);
    state.set(i, 0.05f * normal(random), mean, square * square, 1e-2f * normal(random));
  }
  return state;
}

// Every combination of strange weights, moments and gradients, then random bit patterns.
State strange() {
  const auto& s = strange_numbers();
  const std::size_t k = s.size(), all = k * k * k * k;
  State state(all + 50021);
  for (std::size_t i = 0; i < all; ++i)
    state.set(i, s[i % k], s[i / k % k], s[i / k / k % k], s[i / k / k / k]);
  std::mt19937 random(5);
  const auto any = [&] { return std::bit_cast<float>(std::uint32_t(random())); };
  for (std::size_t i = all; i < state.n; ++i) state.set(i, any(), any(), std::fabs(any()), any());
  return state;
}

AdamwStep typical_step() {
  return adamw_step({}, 3e-4, 0.1, 0.37, 7);
}

TEST(Adamw, HasTheSameBitsAtEveryLevelForOrdinaryAndStrangeNumbers) {
  for (const State& start : {ordinary(100003), strange()}) {
    for (const DType grad : {DType::f32, DType::bf16}) {
      for (const AdamwPiece piece : {AdamwPiece::whole, AdamwPiece::weights, AdamwPiece::moments}) {
        State expected = start;
        adamw(expected.range(grad), typical_step(), piece, CpuLevel::scalar);
        for (const CpuLevel level : cpu_levels()) {
          State state = start;
          adamw(state.range(grad), typical_step(), piece, level);
          EXPECT_TRUE(state.same_bits(expected))
              << name_of(level) << " " << name_of(grad) << " " << int(piece);
        }
      }
    }
  }
}

TEST(Adamw, HasTheSameBitsInTwoPieces) {
  for (const State& start : {ordinary(4099), strange()}) {
    for (const CpuLevel level : cpu_levels()) {
      State whole = start, pieces = start;
      adamw(whole.range(DType::bf16), typical_step(), AdamwPiece::whole, level);
      adamw(pieces.range(DType::bf16), typical_step(), AdamwPiece::weights, level);
      EXPECT_EQ(std::memcmp(pieces.m.data(), start.m.data(), start.m.size() * 4), 0) << "weights alone";
      EXPECT_EQ(pieces.hi, whole.hi);
      adamw(pieces.range(DType::bf16), typical_step(), AdamwPiece::moments, level);
      EXPECT_TRUE(pieces.same_bits(whole)) << name_of(level);
    }
  }
}

TEST(Adamw, HasTheSameBitsAtAnyCutAndLength) {
  const State start = ordinary(300);
  for (const CpuLevel level : cpu_levels()) {
    State whole = start;
    adamw(whole.range(DType::bf16), typical_step(), AdamwPiece::whole, level);
    for (std::int64_t cut = 0; cut <= 70; ++cut) {
      State state = start;
      AdamwRange low = state.range(DType::bf16), high = low;
      low.n = cut;
      high.hi += cut, high.lo += cut, high.m += cut, high.v += cut, high.n -= cut;
      high.grad = static_cast<const bf16_t*>(high.grad) + cut;
      adamw(high, typical_step(), AdamwPiece::whole, level);
      adamw(low, typical_step(), AdamwPiece::whole, level);
      ASSERT_TRUE(state.same_bits(whole)) << name_of(level) << " cut at " << cut;
    }
  }
}

TEST(Adamw, HasTheSameBitsOnAnyNumberOfThreads) {
  const State start = ordinary(100003);
  State expected = start;
  adamw(expected.range(DType::f32), typical_step());
  for (const int count : {1, 2, 3}) {
    Threads threads(count);
    State state = start;
    adamw(threads, state.range(DType::f32), typical_step());
    EXPECT_TRUE(state.same_bits(expected)) << count;
  }
}

TEST(Adamw, FollowsItsFormulaInDoublePrecisionOverManySteps) {
  State state = ordinary(1000);
  std::vector<double> w(state.n), m(state.n), v(state.n);
  for (std::size_t i = 0; i < state.n; ++i) {
    state.m[State::kGuard + i] = state.v[State::kGuard + i] = 0;
    w[i] = state.weight(i);
  }
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const double lr = 1e-3, decay = 0.1, clip = 0.5, b1 = 0.9, b2 = 0.999, eps = 1e-8;
  for (int t = 1; t <= 50; ++t) {
    for (std::size_t i = 0; i < state.n; ++i) {
      const float grad = 0.01f * normal(random);
      state.grad_f32[State::kGuard + i] = grad;
      const double g = clip * double(grad);
      m[i] = b1 * m[i] + (1 - b1) * g;
      v[i] = b2 * v[i] + (1 - b2) * g * g;
      w[i] -= lr *
              (m[i] / (1 - std::pow(b1, t)) / (std::sqrt(v[i] / (1 - std::pow(b2, t))) + eps) + decay * w[i]);
    }
    adamw(state.range(DType::f32), adamw_step({}, lr, decay, clip, t));
  }
  for (std::size_t i = 0; i < state.n; ++i) {
    EXPECT_NEAR(state.weight(i), w[i], 1e-6 * std::fabs(w[i]) + 2e-8) << i;
  }
}

TEST(Adamw, LeavesWeightsExactlyAloneWithoutDecayAndGradient) {
  State state(1);
  for (const double weight_decay : {0.0, 0.1}) {
    state.set(0, 1.0f, 0, 0, 0);
    adamw(state.range(DType::f32), adamw_step({}, 0.01, weight_decay, 1, 1));
    EXPECT_EQ(state.weight(0), weight_decay == 0 ? 1.0f : 0.999f);
  }
}

TEST(Adamw, RefusesAStepBeforeTheFirst) {
  EXPECT_THROW(adamw_step({}, 1e-3, 0, 1, 0), Error);
}

}  // namespace
}  // namespace slideway
