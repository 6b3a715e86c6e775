#include "train/step_work.h"

#include <gtest/gtest.h>

#include "model/shapes.h"

namespace slideway {
namespace {

constexpr double kTokens = 16384, kSequence = 1024;

class StepWorkOf8B : public testing::Test {
 protected:
  StepWork work(int kept_layers, bool one_pass, double max_grad_norm = 0, const LoraLayout* lora = nullptr) {
    TrainPlan plan{.kept_layers = kept_layers, .head_in_one_pass = one_pass};
    plan.numeric.precision = {DType::bf16, DType::bf16, DType::bf16};
    return step_work(config_, layout_, plan, lora, max_grad_norm, kTokens, kSequence);
  }
  const ModelConfig config_ = config_of_shape("llama-3.1-8b");
  const ModelLayout layout_ = make_layout(config_);
};

// 60.06 GFLOP a token with all of a layer computed again and attention's backward counted as twice its forward; here the
// down projection is not computed again, and attention's backward is 5/2 of its forward.
TEST_F(StepWorkOf8B, CountsTheOperationsOfAModelThatIsKnown) {
  const StepWork redone = work(0, true), kept = work(32, true);
  const double down = 2.0 * 4096 * 14336 * 32, attention = 4.0 * kSequence / 2 * 4096 * 32;
  EXPECT_NEAR((redone.forward.flops + redone.backward.flops) / kTokens + down - attention / 2, 60.06e9,
              0.01e9);
  EXPECT_NEAR(kept.model_flops / kTokens, 60.06e9 - 13.96e9 - attention, 0.01e9);
}

TEST_F(StepWorkOf8B, MovesWeightsTwiceAndGradientsOnce) {
  const StepWork w = work(0, true);
  const double layers = double(layout_.layers.front().elements) * 32;
  EXPECT_NEAR(w.forward.up_bytes, 2 * layers + kTokens * 4096 * 2,
              0.001 * layers);  // and the embedding's rows
  EXPECT_NEAR(w.backward.up_bytes, 2 * layers + 2.0 * 128256 * 4096, 0.01 * layers);
  EXPECT_NEAR(w.backward.down_bytes, 2 * layers + 4.0 * 128256 * 4096, 0.02 * layers);
  EXPECT_EQ(w.updated, double(layout_.parameters()));
}

TEST_F(StepWorkOf8B, AFrozenBaseHasNoGradientsAndNothingToUpdateButItsAdapter) {
  const LoraLayout lora =
      make_lora_layout(layout_, {.r = 16, .lora_alpha = 32, .target_modules = choose_modules("all-linear")});
  const StepWork full = work(32, true), tuned = work(32, true, 1.0, &lora);
  EXPECT_EQ(tuned.updated, double(lora.parameters()));
  EXPECT_FALSE(tuned.clips);
  EXPECT_LT(tuned.model_flops, 0.75 * full.model_flops);
  EXPECT_LT(tuned.backward.down_bytes, 0.02 * full.backward.down_bytes);
}

}  // namespace
}  // namespace slideway
