// Plain work on whole blocks.
#include <bit>
#include <limits>

#include "ops/cpu/numeric_plan.h"
#include "rig.h"

namespace slideway {
namespace {

constexpr std::int64_t kSizes[] = {1, 15, 16, 100, 65536, 65537, 200003};

TEST(Block, AddRoundsTheSumOnce) {
  for (const std::int64_t n : kSizes) {
    for (const DType act : kBothTypes) {
      run_case({std::to_string(n) + " " + name_text(act), [&](Rig& rig) {
                  Numbers x = rig.normal(n), y = rig.normal(n);
                  const Tensor X = rig.put(x, act, {1, n});
                  rig.ops().add(X, rig.put(y, act, {1, n}));
                  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
                  rig.expect("x", X, x, 0);
                }});
    }
  }
}

TEST(Block, FillZeroFillsAnyType) {
  for (const std::int64_t n : kSizes) {
    run_case({std::to_string(n), [&](Rig& rig) {
                const Tensor f32 = rig.blank(DType::f32, {n}), bf16 = rig.blank(DType::bf16, {n});
                rig.ops().fill_zero(f32);
                rig.ops().fill_zero(bf16);
                rig.expect("f32", f32, Numbers(std::size_t(n)), 0);
                rig.expect("bf16", bf16, Numbers(std::size_t(n)), 0);
              }});
  }
}

TEST(Block, ConvertRoundsToNearestEvenAndKeepsWhatIsSpecial) {
  for (const std::int64_t n : kSizes) {
    run_case({std::to_string(n), [&](Rig& rig) {
                Numbers x = rig.normal(n);
                const Tensor f32 = rig.put(x, DType::f32, {n}), bf16 = rig.blank(DType::bf16, {n});
                const Tensor back = rig.blank(DType::f32, {n});
                rig.ops().convert(bf16, f32);
                rig.ops().convert(back, bf16);
                for (double& v : x) v = to_float(to_bf16(float(v)));
                EXPECT_EQ(rig.get(bf16), x);
                EXPECT_EQ(rig.get(back), x);
              }});
  }
  const std::uint32_t patterns[] = {0x00000000, 0x80000000, 0x00000001, 0x00008000, 0x00018000, 0x007fffff,
                                    0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000,
                                    0x7fc00001, 0x7f800001, 0xffffffff, 0x7fffffff, 0xff808000};
  run_case({"special", [&](Rig& rig) {
              const std::int64_t n = std::int64_t(std::size(patterns));
              std::vector<std::int32_t> bits(patterns, patterns + n);
              const Tensor words = rig.put(bits, {n}), out = rig.blank(DType::bf16, {n});
              rig.ops().convert(out, Tensor(words.data(), DType::f32, {n}));
              std::vector<bf16_t> found(std::size_t(n), 0);
              std::memcpy(found.data(), rig.bytes(out).data(), std::size_t(2 * n));
              for (std::int64_t i = 0; i < n; ++i) {
                EXPECT_EQ(found[std::size_t(i)], to_bf16(std::bit_cast<float>(patterns[i])))
                    << std::hex << patterns[i];
              }
            }});
}

// The order is fixed: eight sums within a chunk, chunks in ascending order.
TEST(Block, SumOfSquaresKeepsItsOrderWhateverTheThreads) {
  for (const std::int64_t n : kSizes) {
    for (const DType type : kBothTypes) {
      run_case({std::to_string(n) + " " + name_text(type), [&](Rig& rig) {
                  Numbers x = rig.normal(n);
                  const Tensor out = rig.blank(DType::f64, {1});
                  rig.ops().sum_of_squares(out, rig.put(x, type, {n}));
                  double total = 0;
                  for (std::int64_t begin = 0; begin < n; begin += kSquaresChunk) {
                    const std::int64_t size = std::min(kSquaresChunk, n - begin);
                    double lanes[8] = {}, sum = 0;
                    std::int64_t i = 0;
                    for (; i + 8 <= size; ++i) {
                      if (i % 8 == 0) {
                        for (int k = 0; k < 8; ++k)
                          lanes[k] += x[std::size_t(begin + i + k)] * x[std::size_t(begin + i + k)];
                      }
                    }
                    for (const double lane : lanes) sum += lane;
                    for (i = size / 8 * 8; i < size; ++i)
                      sum += x[std::size_t(begin + i)] * x[std::size_t(begin + i)];
                    total += sum;
                  }
                  // On CUDA the sums within a chunk are others: held to f64's own rounding.
                  EXPECT_NEAR(rig.get(out)[0], total, rig.on_cpu() ? 0 : 1e-13 * total);
                  rig.expect("out", out, {total}, 1e-13);
                }});
    }
  }
}

TEST(Block, SumOfSquaresOfWhatIsNotFiniteIsNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (Backend& backend : backends()) {
      Rig rig(backend);
      Numbers x = rig.normal(100);
      x[99] = bad;
      const Tensor out = rig.blank(DType::f64, {1});
      rig.ops().sum_of_squares(out, rig.put(x, DType::f32, {100}));
      EXPECT_FALSE(std::isfinite(rig.get(out)[0]));
    }
  }
}

}  // namespace
}  // namespace slideway
