// The kernels that exist once a level agree in every bit, and what is promised of their order of sums holds.
#include "ops/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

std::vector<float> normal(std::int64_t n, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> draw;
  std::vector<float> x(std::size_t(n), 0.0f);
  for (float& v : x) v = draw(random);
  return x;
}

std::vector<bf16_t> rounded_to_bf16(const std::vector<float>& x) {
  std::vector<bf16_t> y;
  for (const float v : x) y.push_back(to_bf16(v));
  return y;
}

std::vector<float> scratch_of(std::int64_t floats) {
  return std::vector<float>(std::size_t(floats) + 16);
}
float* aligned(std::vector<float>& x) {
  return reinterpret_cast<float*>((reinterpret_cast<std::uintptr_t>(x.data()) + 63) / 64 * 64);
}

struct Dense {
  std::int64_t m, n, k;
  bool a_turned, b_turned, a_bf16, b_bf16, accumulate;
};

std::vector<float> run_dense(const Dense& d, CpuLevel level) {
  std::vector<float> a = normal(d.m * d.k, 1), b = normal(d.k * d.n, 2), out = normal(d.m * d.n, 3);
  std::vector<bf16_t> a16 = rounded_to_bf16(a), b16 = rounded_to_bf16(b);
  const MatrixView A{d.a_bf16 ? static_cast<void*>(a16.data()) : a.data(),
                     d.a_bf16 ? DType::bf16 : DType::f32,
                     d.m,
                     d.k,
                     d.a_turned ? d.m : d.k,
                     d.a_turned};
  const MatrixView B{d.b_bf16 ? static_cast<void*>(b16.data()) : b.data(),
                     d.b_bf16 ? DType::bf16 : DType::f32,
                     d.k,
                     d.n,
                     d.b_turned ? d.k : d.n,
                     d.b_turned};
  std::vector<float> scratch = scratch_of(dense_scratch(d.m));
  kernels(level).dense({out.data(), d.n, A, B, d.accumulate, aligned(scratch)});
  return out;
}

// The specification: one chain of fused multiply-adds.
std::vector<float> chains(const Dense& d) {
  std::vector<float> a = normal(d.m * d.k, 1), b = normal(d.k * d.n, 2), out = normal(d.m * d.n, 3);
  if (d.a_bf16)
    for (float& x : a) x = to_float(to_bf16(x));
  if (d.b_bf16)
    for (float& x : b) x = to_float(to_bf16(x));
  for (std::int64_t i = 0; i < d.m; ++i) {
    for (std::int64_t j = 0; j < d.n; ++j) {
      float sum = d.accumulate ? out[std::size_t(i * d.n + j)] : 0;
      for (std::int64_t l = 0; l < d.k; ++l) {
        sum = std::fma(a[std::size_t(d.a_turned ? l * d.m + i : i * d.k + l)],
                       b[std::size_t(d.b_turned ? j * d.k + l : l * d.n + j)], sum);
      }
      out[std::size_t(i * d.n + j)] = sum;
    }
  }
  return out;
}

TEST(Kernels, DenseProductIsOneChainForEveryNumberAtEveryLevel) {
  for (int bits = 0; bits < 32; ++bits) {
    for (const auto [m, n, k] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {7, 17, 9}, {6, 64, 256}, {13, 130, 300}}) {
      const Dense d{
          m, n, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0};
      const std::vector<float> right = chains(d);
      for (const CpuLevel level : cpu_levels()) {
        EXPECT_TRUE(run_dense(d, level) == right)
            << m << "x" << n << "x" << k << ", form " << bits << ", " << name_of(level);
      }
    }
  }
}

// Sums that are continued by a second call are those of one call: micro-batches add to a weight's gradient as one batch would.
TEST(Kernels, DenseProductIsContinuedWithoutATrace) {
  const std::int64_t m = 9, n = 33, k = 700, first = 301;
  std::vector<float> a = normal(m * k, 1), b = normal(k * n, 2), whole(std::size_t(m * n)),
                     pieces(std::size_t(m * n));
  std::vector<float> scratch = scratch_of(dense_scratch(m));
  const MatrixView A{a.data(), DType::f32, m, k, m, true}, B{b.data(), DType::f32, k, n, n};
  const Kernels& level = kernels(best_cpu_level());
  level.dense({whole.data(), n, A, B, false, aligned(scratch)});
  level.dense({pieces.data(), n, part(A, 0, m, 0, first), part(B, 0, first, 0, n), false, aligned(scratch)});
  level.dense({pieces.data(), n, part(A, 0, m, first, k - first), part(B, first, k - first, 0, n), true,
               aligned(scratch)});
  EXPECT_TRUE(whole == pieces);
}

TEST(Kernels, AttentionHasTheSameBitsAtEveryLevel) {
  const std::int64_t T = 150, H = 6, K = 2, E = 40, row = (H + 2 * K) * E;
  const std::vector<float> qkv = normal(T * row, 4), d_out = normal(T * H * E, 5);
  std::vector<float> first;
  for (const CpuLevel level : cpu_levels()) {
    std::vector<float> out(std::size_t(T * H * E)), lse(std::size_t(H * T)), d_qkv(std::size_t(T * row));
    std::vector<float> scratch = scratch_of(attention_scratch(H / K, E));
    AttentionTile tile{.type = DType::f32,
                       .qkv = qkv.data(),
                       .out = out.data(),
                       .lse = lse.data(),
                       .d_out = d_out.data(),
                       .d_qkv = d_qkv.data(),
                       .rows = T,
                       .heads = H,
                       .kv_heads = K,
                       .width = E,
                       .end = T,
                       .window = 90,
                       .scale = 0.2f,
                       .scratch = aligned(scratch)};
    const auto tiles = [&](std::int64_t size, void (*kernel)(const AttentionTile&)) {
      for (tile.kv_head = 0; tile.kv_head < K; ++tile.kv_head) {
        for (tile.first = 0; tile.first < T; tile.first += size) kernel(tile);
      }
    };
    tiles(query_tile(H / K), kernels(level).attention);
    tiles(query_tile(H / K), kernels(level).attention_d_queries);
    tiles(kKeyTile, kernels(level).attention_d_keys);
    std::vector<float> all = out;
    all.insert(all.end(), lse.begin(), lse.end());
    all.insert(all.end(), d_qkv.begin(), d_qkv.end());
    if (first.empty()) first = all;
    EXPECT_EQ(std::memcmp(first.data(), all.data(), all.size() * 4), 0) << name_of(level);
  }
}

// Units in the last place between a float and the truth.
double units(float found, double truth) {
  int exponent;
  std::frexp(truth, &exponent);
  return std::abs(double(found) - truth) / std::ldexp(1.0, exponent - 24);
}

TEST(Kernels, ExponentialIsWithinTwoUnitsOverItsWholeRange) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits <= 0x42b00000; bits += 1009) {  // 0 … 88
    alignas(64) float x[kLanes], positive[kLanes], negative[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const std::uint32_t b = bits + std::uint32_t(i) * 63;
      std::memcpy(&x[i], &b, 4);
    }
    store(positive, exp_bounded(load(x)));
    store(negative, exp_bounded(zeros() - load(x)));
    for (int i = 0; i < kLanes; ++i) {
      if (x[i] <= 88.0f) worst = std::max(worst, units(positive[i], std::exp(double(x[i]))));
      if (x[i] <= 87.3f) worst = std::max(worst, units(negative[i], std::exp(-double(x[i]))));
    }
  }
  EXPECT_LE(worst, 2.0);
  RecordProperty("worst_units", std::to_string(worst));
}

}  // namespace
}  // namespace slideway
