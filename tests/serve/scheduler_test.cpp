#include "serve/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slideway {
namespace {

std::vector<std::pair<int, int>> plan(const std::vector<SequenceProgress>& running, std::int64_t rows) {
  std::vector<StepShare> shares;
  plan_step(running, {.rows = rows}, shares);
  std::vector<std::pair<int, int>> out;
  for (const auto& share : shares) out.emplace_back(int(share.sequence), int(share.rows));
  return out;
}

using testing::ElementsAre;
using testing::Pair;

TEST(Scheduler, GivesEverySequenceThatDecodesOneRow) {
  EXPECT_THAT(plan({{4, 5}, {9, 10}}, 8), ElementsAre(Pair(0, 1), Pair(1, 1)));
}

TEST(Scheduler, CutsPromptsToWhatDecodingLeaves) {
  EXPECT_THAT(plan({{0, 20}, {9, 10}}, 8), ElementsAre(Pair(0, 7), Pair(1, 1)));
  EXPECT_THAT(plan({{14, 20}, {9, 10}}, 8), ElementsAre(Pair(0, 6), Pair(1, 1)));
}

TEST(Scheduler, ReadsPromptsInOrderOfArrival) {
  EXPECT_THAT(plan({{0, 5}, {0, 6}, {0, 7}}, 8), ElementsAre(Pair(0, 5), Pair(1, 3)));
}

TEST(Scheduler, LeavesOutASequenceWhoseNextTokenIsNotThere) {
  EXPECT_THAT(plan({{5, 5}, {9, 10}}, 8), ElementsAre(Pair(1, 1)));
}

}  // namespace
}  // namespace slideway
