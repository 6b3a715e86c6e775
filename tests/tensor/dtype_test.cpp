#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>

#include "core/threads.h"

namespace slideway {
namespace {

// Every kth of the 2³² patterns: all of them, but for builds that are many times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kStride = 509;
#else
constexpr std::uint64_t kStride = 1;
#endif

constexpr std::uint64_t kSample = 61;  // odd: all low halves, and so all ties, are met

// How many patterns, every stride-th, break the rule; they are cut into 256 pieces.
template <class Rule>
std::int64_t breaking(const Rule& rule, std::uint64_t stride = kStride) {
  Threads threads;
  std::atomic<std::int64_t> broken{0};
  threads.for_each(256, [&](std::int64_t piece) {
    std::int64_t count = 0;
    for (std::uint64_t u = std::uint64_t(piece) << 24; u < std::uint64_t(piece + 1) << 24; u += stride) {
      count += !rule(std::uint32_t(u));
    }
    broken += count;
  });
  return broken;
}

bool is_nan(std::uint32_t u) {
  return (u & 0x7fffffffu) > 0x7f800000u;
}

TEST(Split, JoinsBackToEveryPatternExactly) {
  EXPECT_EQ(breaking([](std::uint32_t u) {
              const Split s = split(std::bit_cast<float>(u));
              if (is_nan(u)) return s.hi == 0x7fc0 && s.lo == 0;
              return std::bit_cast<std::uint32_t>(join(s.hi, s.lo)) == u;
            }),
            0);
}

TEST(Split, DiffersFromRoundingToEvenOnlyInTies) {
  EXPECT_EQ(breaking(
                [](std::uint32_t u) {
                  if (is_nan(u)) return true;
                  const bool tie_below_even = (u & 0xffffu) == 0x8000u && (u >> 16) % 2 == 0;
                  const bf16_t even = to_bf16(std::bit_cast<float>(u));
                  return split(std::bit_cast<float>(u)).hi == bf16_t(even + (tie_below_even ? 1 : 0));
                },
                kSample),
            0);
}

TEST(Bf16, RoundsToTheNearerNeighbourAndTiesToEven) {
  EXPECT_EQ(breaking(
                [](std::uint32_t u) {
                  const float x = std::bit_cast<float>(u);
                  const bf16_t rounded = to_bf16(x);
                  if (std::isnan(x)) return std::isnan(to_float(rounded));
                  if (!std::isfinite(x)) return to_float(rounded) == x;
                  // The neighbours of x: its upper half, and the next number away from zero (which may be infinite,
                  // and then stands for 2^128).
                  const auto value = [](bf16_t b) {
                    return (b & 0x7f80) == 0x7f80 ? std::ldexp(1.0, 128) : std::fabs(double(to_float(b)));
                  };
                  const bf16_t down = bf16_t(u >> 16), up = bf16_t(down + 1);
                  const double below = std::fabs(double(x)) - value(down),
                               above = value(up) - std::fabs(double(x));
                  return rounded == (below < above || (below == above && down % 2 == 0) ? down : up);
                },
                kSample),
            0);
}

// binary16 by its definition, in doubles.
double half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -size : size;
}

TEST(Half, WidensEveryPatternExactlyAndComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = half_to_float(std::uint16_t(bits));
    if ((bits & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(x)) << bits;
      EXPECT_TRUE(std::isnan(half_to_float(to_half(x)))) << bits;
    } else if ((bits & 0x7fff) == 0x7c00) {
      EXPECT_EQ(x, bits >> 15 ? -INFINITY : INFINITY);
      EXPECT_EQ(to_half(x), bits);
    } else {
      ASSERT_EQ(double(x), half_value(std::uint16_t(bits))) << bits;
      ASSERT_EQ(to_half(x), bits);
    }
  }
}

TEST(Half, RoundsTiesToEvenAndOverflowsToInfinity) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double low = half_value(std::uint16_t(bits)),
                 high = bits == 0x7bff ? 65536 : half_value(std::uint16_t(bits + 1));
    const float tie = float((low + high) / 2);  // exact: one bit more than a half has
    const auto even = std::uint16_t(bits % 2 ? bits + 1 : bits);
    ASSERT_EQ(to_half(tie), even) << bits;
    ASSERT_EQ(to_half(std::nextafter(tie, 0.0f)), bits);
    ASSERT_EQ(to_half(std::nextafter(tie, INFINITY)), bits + 1);
    ASSERT_EQ(to_half(-tie), even | 0x8000);
  }
}

TEST(DType, KnowsSizesAndNames) {
  EXPECT_EQ(bytes_of(DType::bf16), 2u);
  EXPECT_EQ(bytes_of(DType::i64), 8u);
  EXPECT_EQ(bytes_of(DType::u8), 1u);
  EXPECT_EQ(name_of(DType::f32), "f32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
}

}  // namespace
}  // namespace slideway
