// The slider on a GPU: against the CPU, and against itself under other plans. Skipped where there is none.
#include <gtest/gtest.h>

#include <cmath>

#include "support/tiny_training.h"

namespace slideway {
namespace {

constexpr Precision kFp32{DType::f32, DType::f32, DType::f32}, kBf16{DType::bf16, DType::bf16, DType::bf16};

class SliderOnCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices() == 0) GTEST_SKIP() << "no CUDA device can be used";
  }

  static std::vector<TinyOptions> kinds(Precision precision) {
    std::vector<TinyOptions> all;
    for (const bool lora : {false, true})
      for (const double max_grad_norm : {0.0, 0.5})
        all.push_back({.cuda = true,
                       .tied = max_grad_norm == 0,
                       .lora = lora,
                       .lora_dropout = lora ? 0.2 : 0,
                       .max_grad_norm = max_grad_norm,
                       .steps = 6,
                       .precision = precision});
    all[0].qk_norm = true;
    all[1].qkv_bias = true;
    return all;
  }
};

TEST_F(SliderOnCuda, LossesAndNormsAreTheCpus) {
  for (const TinyOptions& on_gpu : kinds(kFp32)) {
    TinyOptions on_cpu = on_gpu;
    on_cpu.cuda = false;
    const TinyResult gpu = train_tiny(on_gpu), cpu = train_tiny(on_cpu);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-5 * std::abs(cpu.losses[i])) << "step " << i;
      EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 2e-4 * cpu.norms[i]) << "step " << i;
    }
  }
}

TEST_F(SliderOnCuda, Bf16StaysWithinItsBounds) {
  for (const TinyOptions& on_gpu : kinds(kBf16)) {
    TinyOptions on_cpu = on_gpu;
    on_cpu.cuda = false;
    on_cpu.precision = kFp32;
    const TinyResult gpu = train_tiny(on_gpu), cpu = train_tiny(on_cpu);
    for (std::size_t i = 0; i < cpu.losses.size(); ++i)
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], 2e-2 * std::abs(cpu.losses[i])) << "step " << i;
  }
}

TEST_F(SliderOnCuda, RepeatsToTheBit) {
  for (const Precision precision : {kFp32, kBf16})
    for (const TinyOptions& options : kinds(precision)) EXPECT_EQ(train_tiny(options), train_tiny(options));
}

TEST_F(SliderOnCuda, NoPlanOfMemoryChangesABit) {
  for (const Precision precision : {kFp32, kBf16})
    for (TinyOptions options : kinds(precision)) {
      const TinyResult all_kept = train_tiny(options);
      options.kept_layers = 1;
      options.one_pass = false;
      EXPECT_EQ(train_tiny(options), all_kept);
      options.slots = options.layers;
      options.threads = 3;
      EXPECT_EQ(train_tiny(options), all_kept);
    }
}

}  // namespace
}  // namespace slideway
