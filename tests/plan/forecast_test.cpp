#include "plan/forecast.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

// An 8B model, 32 K tokens a step, on a host of 137 GB/s: the example of docs/design.md.
MachineRates machine() {
  return {.name = "example", .product_flops = 656e12, .copy_up = 55e9, .copy_down = 55e9, .dram = 137e9};
}

StepWork work() {
  const double weights = 16e9;
  return {.tokens = 32768,
          .forward = {.flops = 0.5e15, .up_bytes = weights},
          .backward = {.flops = 1.468e15, .up_bytes = weights, .down_bytes = weights},
          .updated = 8e9};
}

TEST(Forecast, WithoutClippingTheUpdateHidesInTheWholeStep) {
  const StepForecast f = forecast_step(work(), machine());
  EXPECT_NEAR(f.gpu_s, 3.0, 1e-9);
  EXPECT_NEAR(f.dram_s, 32 * 8e9 / 137e9, 1e-9);
  EXPECT_NEAR(f.step_s, 3.0, 1e-9);
  EXPECT_EQ(f.limit, StepLimit::gpu);
}

TEST(Forecast, WithClippingTheUpdateStretchesForwardUnlessItIsCutInTwo) {
  StepWork clipped = work();
  clipped.clips = true;
  const double backward = 1.468e15 / 656e12, p_over_r = 8e9 / 137e9;
  EXPECT_NEAR(forecast_step(clipped, machine()).step_s, 28 * p_over_r + backward, 1e-9);
  clipped.one_piece = 0;
  EXPECT_NEAR(forecast_step(clipped, machine()).step_s, 20 * p_over_r + backward, 1e-9);
}

TEST(Forecast, NamesWhatTheStepWaitsFor) {
  StepWork small = work();
  small.forward.flops /= 8;
  small.backward.flops /= 8;
  EXPECT_EQ(forecast_step(small, machine()).limit, StepLimit::host_memory);
  small.updated = 0;
  MachineRates narrow = machine();
  narrow.copy_up = narrow.copy_down = 10e9;
  EXPECT_EQ(forecast_step(small, narrow).limit, StepLimit::link);
  EXPECT_NEAR(forecast_step(small, narrow).step_s, 2 * 16e9 / 10e9, 1e-9);
}

}  // namespace
}  // namespace slideway
