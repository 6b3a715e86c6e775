#include "train/slider.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "support/tiny_training.h"

namespace slideway {
namespace {

std::vector<TinyOptions> kinds() {
  std::vector<TinyOptions> all;
  for (const bool lora : {false, true})
    for (const double max_grad_norm : {0.0, 0.5}) {
      TinyOptions options{.tied = max_grad_norm == 0, .lora = lora, .max_grad_norm = max_grad_norm};
      options.lora_dropout = lora ? 0.2 : 0;
      all.push_back(options);
    }
  all[0].qk_norm = true;
  all[1].qkv_bias = true;
  TinyOptions resident = all[3];  // frozen layers that stay in their slots: no fetch orders anything
  resident.slots = resident.layers;
  all.push_back(resident);
  TinyOptions shallow = all[0];
  shallow.layers = shallow.kept_layers = 2;
  all.push_back(shallow);
  return all;
}

TinyOptions seeded(TinyOptions options, std::uint64_t seed) {
  options.device.seeded = true;
  options.device.seed = seed;
  return options;
}

TEST(Slider, TrainsSoThatTheLossFalls) {
  for (TinyOptions options : kinds()) {
    options.steps = 1;
    const double first = train_tiny(options).losses.front();
    EXPECT_NEAR(first, std::log(101.0), 1.5);
  }
}

TEST(Slider, SlidThroughTwoSlotsWithRealCopiesEqualsResident) {
  for (const TinyOptions& options : kinds()) {
    const TinyResult resident = train_tiny(options);
    for (std::uint64_t seed = 0; seed < 100; ++seed)
      ASSERT_EQ(train_tiny(seeded(options, seed)), resident) << "seed " << seed << ", lora " << options.lora;
  }
}

TEST(Slider, RecomputedEqualsKept) {
  for (TinyOptions options : kinds()) {
    const TinyResult kept = train_tiny(options);
    for (const int layers : {0, 1}) {
      options.kept_layers = layers;
      EXPECT_EQ(train_tiny(options), kept);
      EXPECT_EQ(train_tiny(seeded(options, 5)), kept);
    }
  }
}

TEST(Slider, TheHeadInTwoPassesEqualsOnePass) {
  for (TinyOptions options : kinds()) {
    const TinyResult one = train_tiny(options);
    options.one_pass = false;
    EXPECT_EQ(train_tiny(options), one);
    for (std::uint64_t seed = 0; seed < 20; ++seed) ASSERT_EQ(train_tiny(seeded(options, seed)), one) << seed;
  }
}

TEST(Slider, SlotsAndThreadsChangeNoBit) {
  for (TinyOptions options : kinds()) {
    const TinyResult one = train_tiny(options);
    options.threads = 3;
    EXPECT_EQ(train_tiny(options), one);
    options.slots = 4;
    EXPECT_EQ(train_tiny(seeded(options, 3)), one);
  }
}

TEST(Slider, TheExactMasterSlidesToo) {
  for (TinyOptions options : kinds()) {
    options.precision = {DType::f32, DType::f32, DType::f32};
    const TinyResult resident = train_tiny(options);
    for (std::uint64_t seed = 0; seed < 10; ++seed) ASSERT_EQ(train_tiny(seeded(options, seed)), resident);
    options.one_pass = false;
    options.kept_layers = 1;
    EXPECT_EQ(train_tiny(seeded(options, 1)), resident);
  }
}

TEST(Slider, FourMicroBatchesEqualOneToRounding) {
  for (TinyOptions options : kinds()) {
    options.lora_dropout = 0;
    options.precision = {DType::f32, DType::f32, DType::f32};
    options.micro_batches = 1;
    const TinyResult whole = train_tiny(options);
    options.micro_batches = 4;
    const TinyResult cut = train_tiny(options);
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(cut.losses[i], whole.losses[i], 2e-6 * whole.losses[i]);
      EXPECT_NEAR(cut.norms[i], whole.norms[i], 2e-5 * whole.norms[i]);
    }
  }
}

// Each stream wait is left out in turn, over many orders; some order must notice, or the wait is not needed.
TEST(Slider, NeedsEveryWaitItIssues) {
  constexpr int kSeeds = 20;
  std::map<std::pair<std::string, std::string>, int> noticed;
  for (TinyOptions options : kinds())
    for (const bool one_pass : {true, false}) {
      options.one_pass = one_pass;
      options.kept_layers = one_pass ? options.layers : 1;
      const TinyResult right = train_tiny(options);
      std::vector<StreamWait> waits;
      TinyOptions listed = seeded(options, 0);
      listed.device.waits = &waits;
      train_tiny(listed);
      std::set<std::pair<std::string, std::string>> names;
      for (const StreamWait& wait : waits) names.emplace(wait.stream, wait.event);
      for (const auto& name : names) {
        int& count = noticed[name];
        if (count > 0) continue;
        for (int seed = 0; seed < kSeeds; ++seed) {
          TinyOptions without = seeded(options, std::uint64_t(seed));
          without.device.drops = [&](const StreamWait& wait) {
            return wait.stream == name.first && wait.event == name.second;
          };
          bool wrong = true;
          try {
            wrong = !(train_tiny(without) == right);
          } catch (const Error&) {
          }
          count += wrong;
        }
      }
    }
  std::printf("%-10s %-28s wrong in\n", "stream", "waits for");
  for (const auto& [name, count] : noticed) {
    std::printf("%-10s %-28s %3d of %d orders\n", name.first.c_str(), name.second.c_str(), count, kSeeds);
    EXPECT_GT(count, 0) << name.first << " waits for '" << name.second << "' without need";
  }
}

}  // namespace
}  // namespace slideway
