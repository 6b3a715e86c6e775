// The split format, held to its definition over every bit pattern that a float can have.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include "core/threads.h"
#include "ops/adamw.h"

namespace slideway {
namespace {

constexpr std::int64_t kBlock = 1 << 16;

// The definition for the 65,536 numbers whose upper half is `high`, apart from the code under test: u = (hi << 16) + lo,
// with lo from −32768 to 32767, so the halves from 0x8000 on belong to the next upper half; a NaN has one form.
struct Expected {
  std::vector<float> x = std::vector<float>(kBlock), joined = x, widened = x;
  std::vector<bf16_t> hi = std::vector<bf16_t>(kBlock);
  std::vector<std::int16_t> lo = std::vector<std::int16_t>(kBlock);

  void set(std::uint32_t high) {
    for (std::uint32_t low = 0; low < kBlock; ++low) {
      x[low] = std::bit_cast<float>(high << 16 | low);
      hi[low] = bf16_t(low < 0x8000 ? high : high + 1);
      lo[low] = std::int16_t(low < 0x8000 ? std::int32_t(low) : std::int32_t(low) - 0x10000);
    }
    joined = x;
    if ((high & 0x7f80) == 0x7f80) {
      for (std::uint32_t low = 0; low < kBlock; ++low) {
        const bool infinite = (high & 0x7fff) == 0x7f80 && low == 0;
        if (!infinite) hi[low] = 0x7fc0, lo[low] = 0, joined[low] = std::bit_cast<float>(0x7fc00000u);
      }
    }
    for (std::uint32_t low = 0; low < kBlock; ++low)
      widened[low] = std::bit_cast<float>(std::uint32_t(hi[low]) << 16);
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

bool block_holds(const Expected& expected, CpuLevel level) {
  thread_local std::vector<float> joined(kBlock), widened(kBlock);
  thread_local std::vector<bf16_t> hi(kBlock);
  thread_local std::vector<std::int16_t> lo(kBlock);
  split_range(hi.data(), lo.data(), expected.x.data(), kBlock, level);
  join_range(joined.data(), hi.data(), lo.data(), kBlock, level);
  widen_range(widened.data(), hi.data(), kBlock, level);
  return same_bits(hi, expected.hi) && same_bits(lo, expected.lo) && same_bits(joined, expected.joined) &&
         same_bits(widened, expected.widened);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStep = 61;  // a sanitizer learns nothing from the rest, and takes minutes
#else
constexpr int kStep = 1;
#endif

TEST(Split, HoldsItsDefinitionOverAllBitPatternsAtEveryLevel) {
  Threads threads;
  std::atomic<int> wrong = 0;
  threads.for_each((kBlock + kStep - 1) / kStep, [&](std::int64_t i) {
    thread_local Expected expected;
    expected.set(std::uint32_t(i * kStep));
    for (const CpuLevel level : cpu_levels()) wrong += !block_holds(expected, level);
  });
  EXPECT_EQ(wrong, 0) << "blocks of 65,536 numbers and levels";
}

TEST(Split, RoundsTiesAwayFromZeroAndKeepsInfinitiesAndDenormals) {
  struct Case {
    std::uint32_t bits;
    std::uint16_t hi;
    std::int16_t lo;
  };
  for (const Case& c :
       {Case{0x3f808000, 0x3f81, -32768}, Case{0x3f818000, 0x3f82, -32768}, Case{0x3f807fff, 0x3f80, 32767},
        Case{0xbf808000, 0xbf81, -32768}, Case{0x7f800000, 0x7f80, 0}, Case{0xff800000, 0xff80, 0},
        Case{0x7f7fffff, 0x7f80, -1}, Case{0x00000001, 0x0000, 1}, Case{0x80000000, 0x8000, 0},
        Case{0x7f800001, 0x7fc0, 0}, Case{0xffffffff, 0x7fc0, 0}}) {
    for (const CpuLevel level : cpu_levels()) {
      bf16_t hi = 0;
      std::int16_t lo = 0;
      const auto x = std::bit_cast<float>(c.bits);
      split_range(&hi, &lo, &x, 1, level);
      EXPECT_EQ(hi, c.hi) << std::hex << c.bits << " " << name_of(level);
      EXPECT_EQ(lo, c.lo) << std::hex << c.bits << " " << name_of(level);
    }
  }
}

TEST(Split, TouchesNothingPastTheRangeAtAnyLength) {
  for (const CpuLevel level : cpu_levels()) {
    for (std::int64_t n = 0; n <= 40; ++n) {
      std::vector<float> x(64, 1.5f), joined(64, 7), widened(64, 7);
      std::vector<bf16_t> hi(64, 7);
      std::vector<std::int16_t> lo(64, 7);
      split_range(hi.data(), lo.data(), x.data(), n, level);
      join_range(joined.data(), hi.data(), lo.data(), n, level);
      widen_range(widened.data(), hi.data(), n, level);
      for (std::size_t i = 0; i < 64; ++i) {
        const bool inside = std::int64_t(i) < n;
        EXPECT_EQ(hi[i], inside ? 0x3fc0 : 7);
        EXPECT_EQ(lo[i], inside ? 0 : 7);
        EXPECT_EQ(joined[i], inside ? 1.5f : 7);
        EXPECT_EQ(widened[i], inside ? 1.5f : 7);
      }
    }
  }
}

}  // namespace
}  // namespace slideway
