#include "serve/logit_rules.h"

#include <gtest/gtest.h>

#include <cmath>

namespace slideway {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LogitRules, PenaliseOnceWhatWasSaidAndByCountWhatWasAnswered) {
  LogitRules rules;
  const SamplingOptions options{.presence_penalty = 0.5f,
                                .frequency_penalty = 0.25f,
                                .repetition_penalty = 2,
                                .logit_bias = {{4, 3.0f}}};
  ASSERT_TRUE(LogitRules::any(options));
  const std::vector<std::int32_t> prompt = {0, 0, 1}, answer = {1, 2, 2};
  for (int round = 0; round < 2; ++round) {  // nothing is left over from a call
    std::vector<float> z = {4, -4, 4, 4, 4};
    rules.apply(z, options, prompt, answer);
    EXPECT_EQ(z, (std::vector<float>{2, -8 - 0.75f, 2 - 1.0f, 4, 7}));
  }
}

TEST(LogitRules, DoNothingWithoutBeingAsked) {
  EXPECT_FALSE(LogitRules::any({.temperature = 0, .top_p = 0.5f}));
}

TEST(LogitRules, BanTokensAndKeepThoseWhoseBitIsSet) {
  std::vector<float> z(40, 1);
  LogitRules::ban(z, std::vector<std::int32_t>{3});
  EXPECT_EQ(z[3], -kInfinity);
  const std::uint32_t allowed[] = {1u << 5, 1u << 7};
  LogitRules::keep(z, allowed);
  for (std::size_t id = 0; id < z.size(); ++id) EXPECT_EQ(z[id], id == 5 || id == 39 ? 1 : -kInfinity) << id;
}

TEST(LogitRules, GiveTheModelsOwnLogProbabilities) {
  const std::vector<float> z = {std::log(0.5f), std::log(0.1f), std::log(0.3f), std::log(0.1f)};
  const TokenLogprobs found = token_logprobs(z, 3, 3);
  EXPECT_EQ(found.chosen.token, 3);
  EXPECT_NEAR(found.chosen.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(found.top.size(), 3u);
  EXPECT_EQ(found.top[0].token, 0);
  EXPECT_EQ(found.top[1].token, 2);
  EXPECT_EQ(found.top[2].token, 1) << "of equals the first";
  EXPECT_EQ(token_logprobs(z, 0, 100).top.size(), 4u);
}

}  // namespace
}  // namespace slideway
