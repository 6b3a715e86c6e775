// What is asked of CUDA beyond the cases that every backend runs.
#include <bit>
#include <limits>

#include "ops/adamw.h"
#include "rig.h"

namespace slideway {
namespace {

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    for (Backend& backend : backends()) {
      if (backend.device->kind() == DeviceKind::cuda) backend_ = &backend;
    }
    if (!backend_) GTEST_SKIP() << "no GPU can be used: the cases of this room ran on the CPU alone";
  }
  Backend* backend_ = nullptr;
};

TEST_F(Cuda, RunsEveryCaseOfThisRoom) {
  std::printf("%s: %s\n", backend_->device->name().c_str(), backend_->ops->numeric_plan().c_str());
  EXPECT_EQ(backend_->ops->preferred_activation(), DType::bf16);
}

TEST_F(Cuda, MakesARowWithoutEmbeddingNotANumber) {
  Rig rig(*backend_);
  Numbers table = rig.normal(8);
  const Tensor out = rig.blank(DType::bf16, {3, 4});
  rig.ops().embed(out, rig.put(table, DType::f32, {2, 4}), rig.put({2, 1, -1}, {3}));
  const Numbers found = rig.get(out);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(found[i]), i / 4 != 1) << i;
}

float any_number(std::mt19937& random) {
  static const float strange[] = {0.f,
                                  -0.f,
                                  0x1p-149f,
                                  -0x1.8p-127f,
                                  1e-20f,
                                  1e19f,
                                  -1e20f,
                                  std::numeric_limits<float>::max(),
                                  std::numeric_limits<float>::infinity(),
                                  -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()};
  const unsigned draw = random();
  if (draw % 4 == 0) return strange[draw / 4 % std::size(strange)];
  if (draw % 4 == 1) return std::bit_cast<float>(std::uint32_t(random()));
  return 1e-3f * std::normal_distribution<float>()(random);
}

// The state of a range of the optimizer, in a backend's memory.
struct Optimized {
  Tensor hi, lo, m, v, grad;
  AdamwRange range(std::int64_t n) const {
    return {static_cast<bf16_t*>(hi.data()),
            static_cast<std::int16_t*>(lo.data()),
            m.f32(),
            v.f32(),
            grad.data(),
            grad.dtype(),
            n};
  }
};

TEST_F(Cuda, UpdatesParametersWithTheBitsOfTheHost) {
  constexpr std::int64_t n = 100003;
  for (const DType type : kBothTypes) {
    for (const AdamwPiece piece : {AdamwPiece::whole, AdamwPiece::weights, AdamwPiece::moments}) {
      std::vector<std::vector<std::byte>> found[4];
      for (Backend* backend : {&backends().front(), backend_}) {
        Rig rig(*backend);
        std::mt19937 random(3);
        std::vector<float> m(n), v(n), grad(n);
        std::vector<bf16_t> hi(n), short_grad(n);
        std::vector<std::int16_t> lo(n);
        for (std::size_t i = 0; i < std::size_t(n); ++i) {
          const Split parts = split(any_number(random));
          hi[i] = parts.hi, lo[i] = parts.lo;
          m[i] = any_number(random);
          v[i] = std::fabs(any_number(random));
          grad[i] = any_number(random);
          short_grad[i] = to_bf16(grad[i]);
        }
        const Optimized state{
            rig.put_bytes(hi.data(), DType::bf16, {n}), rig.put_bytes(lo.data(), DType::i16, {n}),
            rig.put_bytes(m.data(), DType::f32, {n}), rig.put_bytes(v.data(), DType::f32, {n}),
            type == DType::f32 ? rig.put_bytes(grad.data(), type, {n})
                               : rig.put_bytes(short_grad.data(), type, {n})};
        rig.ops().adamw(state.range(n), adamw_step({}, 3e-4, 0.1, 0.37, 7), piece);
        found[0].push_back(rig.bytes(state.hi));
        found[1].push_back(rig.bytes(state.lo));
        found[2].push_back(rig.bytes(state.m));
        found[3].push_back(rig.bytes(state.v));
        rig.check_guards();
      }
      for (const auto& each : found) EXPECT_TRUE(each[0] == each[1]) << name_of(type) << " " << int(piece);
    }
  }
}

TEST_F(Cuda, JoinsHalvesWithTheBitsOfTheHost) {
  constexpr std::int64_t n = 1 << 16;
  std::vector<bf16_t> hi(n);
  std::vector<std::int16_t> lo(n);
  for (std::size_t i = 0; i < std::size_t(n); ++i) hi[i] = bf16_t(i), lo[i] = std::int16_t(i * 40503);
  std::vector<std::vector<std::byte>> found;
  for (Backend* backend : {&backends().front(), backend_}) {
    Rig rig(*backend);
    const Tensor out = rig.blank(DType::f32, {n});
    rig.ops().join(out, rig.put_bytes(hi.data(), DType::bf16, {n}),
                   rig.put_bytes(lo.data(), DType::i16, {n}));
    found.push_back(rig.bytes(out));
  }
  EXPECT_TRUE(found[0] == found[1]);
}

}  // namespace
}  // namespace slideway
