#include "train/options.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slideway {
namespace {

TEST(LearningRate, FallsLinearlyFromTheFirstUpdate) {
  const TrainOptions options{.learning_rate = 1e-5, .lr_scheduler = LrSchedule::linear};
  for (int step = 0; step < 10; ++step)
    EXPECT_DOUBLE_EQ(learning_rate_at(options, step, 10), 1e-5 * (10 - step) / 10.0);
}

TEST(LearningRate, RisesFromZeroAndFollowsTheCosine) {
  const TrainOptions options{.learning_rate = 2.0, .lr_scheduler = LrSchedule::cosine, .warmup_steps = 3};
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 0, 11), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 1, 11), 2.0 / 3);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 3, 11), 2.0);
  EXPECT_NEAR(learning_rate_at(options, 7, 11), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate_at(options, 11, 11), 0.0, 1e-12);
}

TEST(LearningRate, WarmsUpForARoundedUpShareOfAllUpdates) {
  const TrainOptions options{.lr_scheduler = LrSchedule::constant, .warmup_ratio = 0.25};
  EXPECT_EQ(warmup_steps(options, 10), 3);
  EXPECT_DOUBLE_EQ(learning_rate_at(options, 9, 10), options.learning_rate);
}

TEST(TotalSteps, CountsPartsOfEpochsUpwards) {
  EXPECT_EQ(total_steps({.num_epochs = 2}, 7), 14);
  EXPECT_EQ(total_steps({.num_epochs = 0.5}, 7), 4);
  EXPECT_EQ(total_steps({.num_epochs = 2, .max_steps = 3}, 7), 3);
}

}  // namespace
}  // namespace slideway
