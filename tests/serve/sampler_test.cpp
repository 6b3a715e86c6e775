#include "serve/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.h"

namespace slideway {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How often each token is drawn at 20,000 positions.
std::vector<double> shares(std::span<const float> logits, SamplingOptions options) {
  Sampler sampler;
  std::vector<double> count(logits.size());
  constexpr int kDraws = 20'000;
  for (int position = 0; position < kDraws; ++position)
    count[std::size_t(*sampler.sample(logits, options, 0, position))] += 1;
  for (double& n : count) n /= kDraws;
  return count;
}

const float kLogits[] = {std::log(0.5f), std::log(0.1f), std::log(0.3f), std::log(0.1f)};

TEST(Sampler, TakesTheFirstOfTheLikeliestWithoutTemperature) {
  Sampler sampler;
  const float logits[] = {1, 3, -2, 3};
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, 0, 5), 1);
}

TEST(Sampler, DrawsByTheProbabilities) {
  const auto found = shares(kLogits, {.seed = 3});
  for (const auto& [id, wanted] : {std::pair{0, 0.5}, {1, 0.1}, {2, 0.3}, {3, 0.1}})
    EXPECT_NEAR(found[std::size_t(id)], wanted, 0.015) << id;
}

TEST(Sampler, FlattensByTheTemperature) {
  const auto found = shares(kLogits, {.temperature = 2, .seed = 3});
  const double sum = std::sqrt(0.5) + 2 * std::sqrt(0.1) + std::sqrt(0.3);
  EXPECT_NEAR(found[0], std::sqrt(0.5) / sum, 0.015);
}

TEST(Sampler, KeepsTheFewestTokensThatReachTopP) {
  const auto some = shares(kLogits, {.top_p = 0.7f, .seed = 3});
  EXPECT_NEAR(some[0], 0.625, 0.015);
  EXPECT_NEAR(some[2], 0.375, 0.015);
  EXPECT_EQ(some[1] + some[3], 0);
  EXPECT_EQ(shares(kLogits, {.top_p = 1e-6f})[0], 1) << "one is always left";
}

TEST(Sampler, KeepsTheLikeliestTopKAndOfEqualsTheFirst) {
  const auto found = shares(kLogits, {.top_k = 3, .seed = 3});
  EXPECT_NEAR(found[1], 1 / 9.0, 0.015);
  EXPECT_EQ(found[3], 0);
}

TEST(Sampler, KeepsWhatIsAtLeastMinPTimesAsLikelyAsTheLikeliest) {
  const auto found = shares(kLogits, {.min_p = 0.5f, .seed = 3});
  EXPECT_NEAR(found[0], 0.625, 0.015);
  EXPECT_NEAR(found[2], 0.375, 0.015);
  EXPECT_EQ(found[1] + found[3], 0);
}

TEST(Sampler, AppliesTopPToWhatTopKLeft) {
  // Of 0.5 and 0.3 the first alone has 0.625 ≥ 0.6; of all four it has only 0.5.
  EXPECT_EQ(shares(kLogits, {.top_p = 0.6f, .top_k = 2})[0], 1);
}

TEST(Sampler, DrawsAnewForEverySeedChoiceAndPosition) {
  Sampler sampler;
  std::vector<float> logits(1000);
  const auto at = [&](std::uint64_t seed, std::uint64_t choice, std::int64_t position) {
    return *sampler.sample(logits, {.seed = seed}, choice, position);
  };
  EXPECT_EQ(at(1, 2, 3), at(1, 2, 3));
  EXPECT_NE(at(1, 2, 3), at(2, 2, 3));
  EXPECT_NE(at(1, 2, 3), at(1, 3, 3));
  EXPECT_NE(at(1, 2, 3), at(1, 2, 4));
}

TEST(Sampler, GivesNothingForLogitsThatAreNoNumbers) {
  Sampler sampler;
  const float nan[] = {1, std::nanf(""), 2}, infinite[] = {1, kInfinity}, none[] = {-kInfinity, -kInfinity};
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_FALSE(sampler.sample(nan, {.temperature = temperature}, 0, 0));
    EXPECT_FALSE(sampler.sample(infinite, {.temperature = temperature}, 0, 0));
    EXPECT_FALSE(sampler.sample(none, {.temperature = temperature}, 0, 0));
  }
  const float masked[] = {-kInfinity, 0};
  EXPECT_EQ(sampler.sample(masked, {}, 0, 0), 1) << "a masked token is none of these";
}

TEST(Sampler, RefusesOptionsOutsideTheirRange) {
  expect_error(ErrorKind::invalid_input, {"temperature", "-1"},
               [] { validate(SamplingOptions{.temperature = -1}); });
  expect_error(ErrorKind::invalid_input, {"temperature"},
               [] { validate(SamplingOptions{.temperature = NAN}); });
  expect_error(ErrorKind::invalid_input, {"top_p"}, [] { validate(SamplingOptions{.top_p = 0}); });
  expect_error(ErrorKind::invalid_input, {"top_p"}, [] { validate(SamplingOptions{.top_p = 1.5f}); });
  expect_error(ErrorKind::invalid_input, {"top_k"}, [] { validate(SamplingOptions{.top_k = -1}); });
}

}  // namespace
}  // namespace slideway
